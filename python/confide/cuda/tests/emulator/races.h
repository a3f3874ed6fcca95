// What a launch on the CPU tells races.cpp, where kernels are built with $CONFIDE_CPU_RACES=1: who runs, and where.
#pragma once

#include <cstddef>
#include <cstdint>

struct Races {
    // Accesses count while a kernel's own code runs; `atomic`: they are of an atomic operation.
    volatile bool running, atomic;
    volatile uint32_t launch, block, thread, phase;
    uintptr_t stacks_begin, stacks_end;
    char fault[256];
};

#ifdef CONFIDE_RACES
extern "C++" __attribute__((visibility("hidden"))) Races confide_races;
#define CONFIDE_RACE(statement) (confide_races.statement)
#else
#define CONFIDE_RACE(statement) ((void)0)
#endif

// Inside it, accesses are the emulation's own.
struct OutsideKernel {
    OutsideKernel() { CONFIDE_RACE(running = false); }
    ~OutsideKernel() { CONFIDE_RACE(running = true); }
};

// Inside it, accesses are of one atomic operation.
struct InAtomic {
    InAtomic() { CONFIDE_RACE(atomic = true); }
    ~InAtomic() { CONFIDE_RACE(atomic = false); }
};
