// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Vector clocks. An agent is one pipe of one core; its time is the number of things that it has done. A clock says up to
// which time of every agent everything is known to have happened before.
//
// Most knowledge is about the pipes of the own core, so a clock holds these as numbers and all other agents in a shared,
// immutable table, which exists only once cores have synchronised with each other.

#ifndef ASCEND_TWIN_CLOCK_H
#define ASCEND_TWIN_CLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "twin/machine.h"

namespace ascend_twin {

struct Table {
    uint32_t refs;
    uint32_t agents;
    uint32_t *at() { return reinterpret_cast<uint32_t *>(this + 1); }
    static Table *make(uint32_t agents)
    {
        auto *t = static_cast<Table *>(calloc(1, sizeof(Table) + sizeof(uint32_t) * agents));
        t->refs = 1;
        t->agents = agents;
        return t;
    }
    void keep() { refs++; }
    void drop()
    {
        if (--refs == 0) {
            free(this);
        }
    }
};

class Clock {
public:
    Clock() = default;
    Clock(const Clock &o) : others_(o.others_)
    {
        memcpy(own, o.own, sizeof own);
        if (others_ != nullptr) {
            others_->keep();
        }
    }
    Clock(Clock &&o) noexcept : others_(o.others_)
    {
        memcpy(own, o.own, sizeof own);
        o.others_ = nullptr;
    }
    Clock &operator=(const Clock &o)
    {
        if (this != &o) {
            memcpy(own, o.own, sizeof own);
            set_others(o.others_);
        }
        return *this;
    }
    Clock &operator=(Clock &&o) noexcept
    {
        memcpy(own, o.own, sizeof own);
        Table *t = o.others_;
        o.others_ = others_;
        others_ = t;
        return *this;
    }
    ~Clock()
    {
        if (others_ != nullptr) {
            others_->drop();
        }
    }

    // Time of a pipe of another core.
    uint32_t other(uint32_t agent) const { return others_ == nullptr ? 0 : others_->at()[agent]; }

    // With a clock of the same core.
    void join(const Clock &o)
    {
        for (int i = 0; i < kPipes; i++) {
            own[i] = own[i] > o.own[i] ? own[i] : o.own[i];
        }
        join_table(o.others_);
    }
    // With what another core published (see `publish`); `core` is the own one.
    void join_published(Table *t, uint32_t core)
    {
        uint32_t *a = t->at() + core * kPipes;
        for (int i = 0; i < kPipes; i++) {
            own[i] = own[i] > a[i] ? own[i] : a[i];
        }
        join_table(t);
    }
    // A table of all agents, the pipes of `core` included. The caller owns one reference.
    Table *publish(uint32_t core, uint32_t agents) const
    {
        Table *t = Table::make(agents);
        if (others_ != nullptr) {
            memcpy(t->at(), others_->at(), sizeof(uint32_t) * agents);
        }
        memcpy(t->at() + core * kPipes, own, sizeof own);
        return t;
    }

    uint32_t own[kPipes] = {};

private:
    void set_others(Table *t)
    {
        if (t != nullptr) {
            t->keep();
        }
        if (others_ != nullptr) {
            others_->drop();
        }
        others_ = t;
    }
    void join_table(Table *t)
    {
        if (t == nullptr || t == others_) {
            return;
        }
        if (others_ == nullptr) {
            set_others(t);
            return;
        }
        const uint32_t n = t->agents;
        const uint32_t *a = others_->at(), *b = t->at();
        bool a_less = false, b_less = false;
        for (uint32_t i = 0; i < n; i++) {
            a_less |= a[i] < b[i];
            b_less |= b[i] < a[i];
        }
        if (!a_less) {
            return;
        }
        if (!b_less) {
            set_others(t);
            return;
        }
        Table *m = Table::make(n);
        uint32_t *c = m->at();
        for (uint32_t i = 0; i < n; i++) {
            c[i] = a[i] > b[i] ? a[i] : b[i];
        }
        others_->drop();
        others_ = m;
    }

    Table *others_ = nullptr;
};

} // namespace ascend_twin

#endif
