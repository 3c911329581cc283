// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The rules a kernel can break: X(enumerator, "name in reports", "what it means").

#ifndef ASCEND_TWIN_RULES_H
#define ASCEND_TWIN_RULES_H

#define ASCEND_TWIN_RULES(X)                                                                                           \
    X(Capacity, "capacity", "buffers are larger than the memory they lie in")                                          \
    X(Alignment, "alignment", "an address or length is not a multiple of what the memory or unit needs")               \
    X(Bounds, "bounds", "an access leaves its buffer, its memory or the arguments of the launch")                      \
    X(Range, "range", "a parameter is outside of the values that its field can hold or the unit takes")                \
    X(Type, "type", "the chip does not have this operation for this element type")                                     \
    X(Overlap, "overlap", "source and destination overlap without being the same")                                     \
    X(ReadBeforeWrite, "read-before-write", "an instruction reads on-chip memory that nothing was written to")         \
    X(Undefined, "undefined", "bytes without a defined value are used as data")                                        \
    X(HazardRaw, "hazard-raw", "a read is not ordered after the write of what it reads")                               \
    X(HazardWar, "hazard-war", "a write is not ordered after a read of what it overwrites")                            \
    X(HazardWaw, "hazard-waw", "a write is not ordered after an earlier write of the same place")                      \
    X(FlagDoubleSet, "flag-double-set", "an event is set again though the wait for it need not have happened")         \
    X(FlagUnmatched, "flag-unmatched", "an event is still set when the kernel ends")                                   \
    X(FlagId, "flag-id", "an event id is outside of its range, or used by hand and by a queue")                        \
    X(CrossFlag, "cross-flag", "a cross-core flag overflows, is left set, or is used where it does not work")          \
    X(Deadlock, "deadlock", "no core can go on")                                                                       \
    X(Queue, "queue", "a queue or buffer is used against its protocol")                                                \
    X(StateLeft, "state-left", "a mask, a mode or an atomic operation is still set when the kernel ends")              \
    X(StaleCache, "stale-cache", "the scalar unit reads a line of its data cache that was overwritten in memory")      \
    X(DirtyCache, "dirty-cache", "the scalar unit wrote to memory and never cleaned its data cache")                   \
    X(Blocks, "blocks", "more blocks are launched than the chip has cores, and they wait for each other")              \
    X(WrongCore, "wrong-core", "a cube call on a vector core, a vector call on a cube core, or a memory that is elsewhere") \
    X(Gemv, "gemv", "m = 1 makes the cube unit read its left operand as a plain vector")                               \
    X(Quant, "quant", "the conversion that was asked for does not fit the types")                                      \
    X(Assert, "assert", "an assertion of the kernel failed")                                                           \
    X(Usage, "usage", "a call is made in a way that its contract excludes")                                            \
    X(Launch, "launch", "the launch does not fit the kernel")

#endif
