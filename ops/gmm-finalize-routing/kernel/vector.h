// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A vector core: what it prepares for the cube, then what finishes the products.

#ifndef GMM_FINALIZE_ROUTING_VECTOR_H
#define GMM_FINALIZE_ROUTING_VECTOR_H

#include "combine.h"

namespace finalize {

class Vector {
public:
    __aicore__ inline void Run(const Arguments &a)
    {
        uint32_t status = 0, covered = 0;
        Groups groups;
        groups.Init(a);
        for (uint32_t e = 0; e < a.t.experts; e++) {
            covered = groups.End(e, covered);
        }
        uint32_t worker = static_cast<uint32_t>(GetBlockIdx());
        if (worker == 0 && groups.Clamped()) {
            status |= kBadGroups;
        }
        arch::Prepare prepare;
        prepare.Run(a, groups, status);
        if (a.t.atomic != 0) {
            Scatter scatter;
            scatter.Init(a, covered, prepare.Factor());
            scatter.Run(status);
        } else {
            Combine combine;
            combine.Init(a, covered, prepare.Factor());
            combine.Run(status);
        }
        if (status != 0) {
            GlobalTensor<uint32_t> words;
            words.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(a.status), 2ull * a.cores * kStatusWords);
            GlobalTensor<uint32_t> mine = words[static_cast<uint64_t>(worker) * kStatusWords];
            mine.SetValue(0, mine.GetValue(0) | status);
            DataCacheCleanAndInvalid<uint32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(mine);
        }
    }
};

} // namespace finalize

#endif
