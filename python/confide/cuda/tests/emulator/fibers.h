// Switching between stacks: by hand on x86-64 and AArch64 (a few nanoseconds), by ucontext elsewhere.
#pragma once

#include <cstdint>

namespace confide_cpu {

#if defined(__x86_64__) || defined(__aarch64__)

// A stack pointer is the whole of a suspended fiber: its callee-saved registers lie on its own stack.
struct Suspended {
    void *stack_pointer = nullptr;
};

extern "C" __attribute__((visibility("hidden"))) void confide_switch(void **save, void *load);

#if defined(__x86_64__)
asm(".text\n.type confide_switch,@function\nconfide_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    // Not `ret`: the processor would predict the caller that this stack did not come from.
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\npopq %rcx\njmpq *%rcx\n"
    ".size confide_switch,.-confide_switch\n");

static inline void prepare(Suspended &fiber, char *stack, size_t bytes, void (*entry)()) {
    // Six registers, then the address that `ret` takes; the entry finds its stack as after a call.
    void **top = reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t(15)) - 64);
    for (int i = 0; i < 8; i++) top[i] = nullptr;
    top[6] = reinterpret_cast<void *>(entry);
    fiber.stack_pointer = top;
}
#else
asm(".text\n.type confide_switch,%function\nconfide_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n"
    ".size confide_switch,.-confide_switch\n");

static inline void prepare(Suspended &fiber, char *stack, size_t bytes, void (*entry)()) {
    void **top = reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t(15)) - 160);
    for (int i = 0; i < 20; i++) top[i] = nullptr;
    top[11] = reinterpret_cast<void *>(entry);
    fiber.stack_pointer = top;
}
#endif

static inline void switch_to(Suspended &from, Suspended &to) {
    confide_switch(&from.stack_pointer, to.stack_pointer);
}

#else

}  // namespace confide_cpu
#include <ucontext.h>
namespace confide_cpu {

struct Suspended {
    ucontext_t context;
};

static inline void prepare(Suspended &fiber, char *stack, size_t bytes, void (*entry)()) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
}

static inline void switch_to(Suspended &from, Suspended &to) { swapcontext(&from.context, &to.context); }

#endif

}  // namespace confide_cpu
