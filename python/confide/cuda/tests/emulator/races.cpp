// Data races of a kernel on the CPU form, found by what the compiler's `-fsanitize=thread` tells of each access (this
// file takes the place of its runtime). Two accesses to a byte, one of them a write, race where they are of different
// blocks of a launch, or of different threads of a block with no __syncthreads between. Atomics race with plain
// accesses only. A warp exchange orders nothing here, as it promises nothing about memory. What is read by __ldcg is
// taken to be ordered by the kernel's own counters and fences.
#include "races.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_map>

Races confide_races{};

namespace {

struct Cell {
    uint32_t launch, write_block, write_phase, read_block, read_phase;
    uint16_t write_thread, read_thread;
    bool written, atomically, read, by_threads, by_blocks;
};

constexpr uintptr_t PAGE = 1 << 12;
std::unordered_map<uintptr_t, std::unique_ptr<Cell[]>> pages;
uintptr_t last_page = 0, image_begin = 0, image_end = 0;
Cell *last_cells = nullptr;

int find_image(dl_phdr_info *info, size_t, void *) {
    uintptr_t here = reinterpret_cast<uintptr_t>(&confide_races), begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD) continue;
        uintptr_t first = info->dlpi_addr + part.p_vaddr, last = first + part.p_memsz;
        begin = first < begin ? first : begin, end = last > end ? last : end;
    }
    if (here < begin || here >= end) return 0;
    image_begin = begin, image_end = end;
    return 1;
}

Cell &cell_of(uintptr_t address) {
    uintptr_t page = address / PAGE;
    if (page != last_page || !last_cells) {
        auto &cells = pages[page];
        if (!cells) cells.reset(new Cell[PAGE]());
        last_page = page, last_cells = cells.get();
    }
    return last_cells[address % PAGE];
}

void tell(const char *what, uintptr_t address, bool shared, uint32_t block, uint32_t thread, void *caller) {
    const Races &now = confide_races;
    snprintf(confide_races.fault, sizeof confide_races.fault,
             "race in %s memory at %p: block %u thread %u %s what block %u (thread %u or others) used, with no barrier "
             "between (code +0x%lx)",
             shared ? "shared" : "global", reinterpret_cast<void *>(address), now.block, now.thread, what, block,
             thread, static_cast<unsigned long>(reinterpret_cast<uintptr_t>(caller) - image_begin));
}

void note(uintptr_t address, size_t bytes, bool write, void *caller) {
    Races &now = confide_races;
    uintptr_t own = reinterpret_cast<uintptr_t>(&confide_races);
    if (!now.running || now.fault[0] || (address >= own && address < own + sizeof now)) return;
    if (address >= now.stacks_begin && address < now.stacks_end) return;
    if (!image_end) dl_iterate_phdr(find_image, nullptr);
    bool shared = address >= image_begin && address < image_end;
    for (; bytes > 0; bytes--, address++) {
        Cell &cell = cell_of(address);
        bool before = cell.launch == now.launch;
        // Shared memory is another block's afterwards.
        if (shared && before) before = (cell.written ? cell.write_block : cell.read_block) == now.block;
        if (!before) cell = Cell{}, cell.launch = now.launch;
        bool elsewhere = cell.write_block != now.block;
        bool unordered = elsewhere || (cell.write_phase == now.phase && cell.write_thread != now.thread);
        if (cell.written && unordered && !(cell.atomically && now.atomic)) {
            return tell(write ? "writes" : "reads", address, shared, cell.write_block, cell.write_thread, caller);
        }
        if (write && cell.read) {
            bool others = cell.by_threads || cell.read_thread != now.thread;
            if (cell.by_blocks || cell.read_block != now.block || (cell.read_phase == now.phase && others)) {
                return tell("overwrites", address, shared, cell.read_block, cell.read_thread, caller);
            }
        }
        if (write) {
            cell.written = true, cell.atomically = now.atomic;
            cell.write_block = now.block, cell.write_phase = now.phase, cell.write_thread = uint16_t(now.thread);
        } else if (!now.atomic) {
            bool same = cell.read && cell.read_block == now.block && cell.read_phase == now.phase;
            cell.by_blocks |= cell.read && cell.read_block != now.block;
            cell.by_threads = same && (cell.by_threads || cell.read_thread != now.thread);
            cell.read = true, cell.read_block = now.block, cell.read_phase = now.phase;
            cell.read_thread = uint16_t(now.thread);
        }
    }
}

}  // namespace

#define CONFIDE_SIZE(bytes)                                                                                         \
    void __tsan_read##bytes(void *at) { note(uintptr_t(at), bytes, false, __builtin_return_address(0)); }           \
    void __tsan_write##bytes(void *at) { note(uintptr_t(at), bytes, true, __builtin_return_address(0)); }           \
    void __tsan_unaligned_read##bytes(void *at) { note(uintptr_t(at), bytes, false, __builtin_return_address(0)); } \
    void __tsan_unaligned_write##bytes(void *at) { note(uintptr_t(at), bytes, true, __builtin_return_address(0)); } \
    void __tsan_volatile_read##bytes(void *at) { note(uintptr_t(at), bytes, false, __builtin_return_address(0)); }  \
    void __tsan_volatile_write##bytes(void *at) { note(uintptr_t(at), bytes, true, __builtin_return_address(0)); }
extern "C" {
CONFIDE_SIZE(1)
CONFIDE_SIZE(2)
CONFIDE_SIZE(4)
CONFIDE_SIZE(8)
CONFIDE_SIZE(16)
void __tsan_read_range(void *at, size_t bytes) { note(uintptr_t(at), bytes, false, __builtin_return_address(0)); }
void __tsan_write_range(void *at, size_t bytes) { note(uintptr_t(at), bytes, true, __builtin_return_address(0)); }
void __tsan_vptr_update(void **, void *) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
