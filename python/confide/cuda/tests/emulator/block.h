// A block of threads on a CPU: the fibers, the block's barrier, the warp's exchanges, the launch over a grid.
#pragma once

namespace confide_cpu {

constexpr unsigned BLOCK_THREADS_MAX = 1024;
constexpr size_t STACK_BYTES = 128 << 10;
// What one block may have at most on sm_90 (227 KiB).
constexpr size_t SHARED_BYTES_MAX = 227 << 10;

enum class State : uint8_t { Fresh, Ready, AtBlock, AtWarp, Ended };
enum class Exchange : uint8_t { Shuffle, Ballot, Sync };

struct Thread {
    Suspended suspended;
    uint3 index;
    State state;
    uint16_t stack;
    // The warp exchange that this thread waits in.
    Exchange exchange;
    uint32_t mask;
    int source;
    uint64_t value, result;
};

static Thread threads[BLOCK_THREADS_MAX];
static Suspended scheduler;
static unsigned now, count, ended, at_block, cursor;
static bool backwards;
static unsigned block_votes[2], block_count;
static uint32_t warp_waiting[BLOCK_THREADS_MAX / 32];
static char *stacks;
static uint16_t free_stacks[BLOCK_THREADS_MAX];
static unsigned free_count;
static void (*body)(void **);
static void **body_arguments;
static char fault[512];
static std::mutex one_launch;
alignas(128) static unsigned char dynamic_shared[SHARED_BYTES_MAX];

static inline void leave() { switch_to(threads[now].suspended, scheduler); }

static inline Thread &begin(unsigned thread, uint16_t stack) {
    Thread &self = threads[thread];
    self.state = State::Ready;
    self.stack = stack;
    now = thread;
    CONFIDE_RACE(thread = thread);
    threadIdx = self.index;
    return self;
}

// The thread in place `cursor` of the order in which this pass visits them.
static inline unsigned thread_at_cursor() { return backwards ? count - 1 - cursor : cursor; }

// A fiber runs one thread after the other, on one warm stack and without a switch, until one of them must wait.
static void entry() {
    for (;;) {
        body(body_arguments);
        Thread &self = threads[now];
        self.state = State::Ended;
        ended++;
        if (cursor + 1 < count) {
            cursor++;
            if (threads[thread_at_cursor()].state == State::Fresh) {
                begin(thread_at_cursor(), self.stack);
                continue;
            }
            cursor--;
        }
        free_stacks[free_count++] = self.stack;
        leave();
        abort();
    }
}

static inline void resume(unsigned thread) {
    Thread &next = threads[thread];
    if (next.state == State::Fresh) {
        // The tops are staggered: at equal distances of a power of two they would share one set of the cache.
        uint16_t stack = free_stacks[--free_count];
        begin(thread, stack);
        prepare(next.suspended, stacks + stack * STACK_BYTES, STACK_BYTES - stack % 61 * 192, entry);
    } else {
        begin(thread, next.stack);
    }
    switch_to(scheduler, next.suspended);
}

// All threads of the block meet; returns how many came with `vote` true.
static inline unsigned block_barrier(bool vote) {
    OutsideKernel outside;
    Thread &self = threads[now];
    block_votes[0] += vote;
    at_block++;
    if (at_block < count) {
        self.state = State::AtBlock;
        leave();
        return block_votes[1];
    }
    at_block = 0;
    CONFIDE_RACE(phase++);
    block_votes[1] = block_votes[0];
    block_votes[0] = 0;
    for (unsigned i = 0; i < count; i++) {
        if (threads[i].state == State::AtBlock) threads[i].state = State::Ready;
    }
    return block_votes[1];
}

static void resolve(unsigned first, uint32_t mask, Exchange exchange) {
    uint32_t ballot = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        if ((mask >> lane & 1) && threads[first + lane].value) ballot |= 1u << lane;
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        Thread &thread = threads[first + lane];
        bool given = mask >> (thread.source & 31) & 1;
        if (exchange == Exchange::Ballot) thread.result = ballot;
        // A lane that takes from one outside the exchange gets what no kernel should rely on.
        if (exchange == Exchange::Shuffle) {
            thread.result = given ? threads[first + (thread.source & 31)].value : 0xbadbadbadbadbadbull;
        }
        if (thread.state == State::AtWarp) thread.state = State::Ready;
    }
}

// The lanes of `mask` meet. A shuffle answers with the value of lane `source`; the last to come works it out for all.
static inline uint64_t warp_exchange(Exchange exchange, uint32_t mask, uint64_t value, int source) {
    OutsideKernel outside;
    unsigned first = now & ~31u, lane = now & 31u;
    unsigned lanes = count - first < 32 ? count - first : 32;
    if (lanes < 32) mask &= (1u << lanes) - 1;
    Thread &self = threads[now];
    self.exchange = exchange, self.mask = mask, self.value = value, self.source = source;
    uint32_t &waiting = warp_waiting[now / 32];
    waiting |= 1u << lane;
    bool complete = (waiting & mask) == mask && (mask >> lane & 1);
    for (unsigned other = 0; complete && other < 32; other++) {
        if (!(mask >> other & 1)) continue;
        const Thread &member = threads[first + other];
        complete = member.mask == mask && member.exchange == exchange;
    }
    if (!complete) {
        self.state = State::AtWarp;
        leave();
        return threads[now].result;
    }
    waiting &= ~mask;
    resolve(first, mask, exchange);
    return self.result;
}

static void describe_deadlock() {
    unsigned in_block = 0, in_warp = 0;
    for (unsigned i = 0; i < count; i++) {
        in_block += threads[i].state == State::AtBlock;
        in_warp += threads[i].state == State::AtWarp;
    }
    snprintf(fault, sizeof fault,
             "block (%u, %u, %u) is stuck: of %u threads %u wait at __syncthreads, %u in a warp exchange, %u have "
             "returned",
             blockIdx.x, blockIdx.y, blockIdx.z, count, in_block, in_warp, ended);
}

static bool run_block() {
    unsigned thread = 0;
    for (unsigned z = 0; z < blockDim.z; z++)
        for (unsigned y = 0; y < blockDim.y; y++)
            for (unsigned x = 0; x < blockDim.x; x++, thread++) {
                threads[thread].index = {x, y, z};
                threads[thread].state = State::Fresh;
            }
    ended = at_block = block_votes[0] = 0;
    for (free_count = 0; free_count < BLOCK_THREADS_MAX; free_count++) free_stacks[free_count] = free_count;
    memset(warp_waiting, 0, sizeof warp_waiting);
    while (ended < count) {
        bool moved = false;
        for (cursor = 0; cursor < count; cursor++) {
            unsigned next = thread_at_cursor();
            if (threads[next].state != State::Fresh && threads[next].state != State::Ready) continue;
            moved = true;
            resume(next);
        }
        if (!moved) {
            describe_deadlock();
            return false;
        }
    }
    return true;
}

static const char *run_grid(const unsigned *dims, size_t shared, int order) {
    gridDim.x = dims[0], gridDim.y = dims[1], gridDim.z = dims[2];
    blockDim.x = dims[3], blockDim.y = dims[4], blockDim.z = dims[5];
    count = blockDim.x * blockDim.y * blockDim.z;
    if (count == 0 || count > BLOCK_THREADS_MAX || shared > SHARED_BYTES_MAX) {
        return "the launch asks for more threads or shared memory than a block has";
    }
    if (!stacks) {
        void *mapped = mmap(nullptr, STACK_BYTES * BLOCK_THREADS_MAX, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) return "no memory for the stacks of a block";
        stacks = static_cast<char *>(mapped);
        CONFIDE_RACE(stacks_begin = uintptr_t(stacks));
        CONFIDE_RACE(stacks_end = uintptr_t(stacks) + STACK_BYTES * BLOCK_THREADS_MAX);
    }
    CONFIDE_RACE(launch++);
    CONFIDE_RACE(fault[0] = 0);
    backwards = order == 1;
    uint64_t blocks = uint64_t(gridDim.x) * gridDim.y * gridDim.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t block = backwards ? blocks - 1 - i : i;
        blockIdx.x = block % gridDim.x;
        blockIdx.y = block / gridDim.x % gridDim.y;
        blockIdx.z = block / gridDim.x / gridDim.y;
        // What a block left behind must not look like zeros to the next.
        memset(dynamic_shared, 0xa5, shared);
        CONFIDE_RACE(block = uint32_t(block));
        if (!run_block()) return fault;
#ifdef CONFIDE_RACES
        if (confide_races.fault[0]) return confide_races.fault;
#endif
    }
    return nullptr;
}

template <class... Parameters>
struct Call {
    static void (*kernel)(Parameters...);

    template <size_t... At>
    static void spread(void **arguments, std::index_sequence<At...>) {
        CONFIDE_RACE(running = true);
        kernel(*static_cast<std::remove_cv_t<Parameters> *>(arguments[At])...);
        CONFIDE_RACE(running = false);
    }

    static void run(void **arguments) { spread(arguments, std::index_sequence_for<Parameters...>{}); }
};
template <class... Parameters>
void (*Call<Parameters...>::kernel)(Parameters...);

template <class... Parameters>
static const char *launch(void (*kernel)(Parameters...), void **arguments, const unsigned *dims, size_t shared,
                          int order) {
    std::lock_guard<std::mutex> held(one_launch);
    Call<Parameters...>::kernel = kernel;
    body = Call<Parameters...>::run;
    body_arguments = arguments;
    return run_grid(dims, shared, order);
}

// The sizes of a kernel's parameters in bytes, ended by zero: what runtime.py packs is checked against it.
template <class... Parameters>
static const uint32_t *parameter_bytes(void (*)(Parameters...)) {
    static const uint32_t bytes[] = {uint32_t(sizeof(Parameters))..., 0};
    return bytes;
}

}  // namespace confide_cpu

// Written once for each kernel by __init__.py, after the .cu file.
#define CONFIDE_KERNEL(name)                                                                                  \
    extern "C" const char *confide_run_##name(void **arguments, const unsigned *dims, size_t shared, int order) { \
        return confide_cpu::launch(name, arguments, dims, shared, order);                                     \
    }                                                                                                         \
    extern "C" const uint32_t *confide_parameters_##name() { return confide_cpu::parameter_bytes(name); }
