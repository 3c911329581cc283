// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Runs the examples of one image (see examples/example.h), in fast mode and under chaos seeds.
// usage: run_image [SEEDS] [NAME]   linked together with the image's object and the library.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#include "twin/abi.h"

int main(int argc, char **argv)
{
    const unsigned long seeds = argc > 1 ? strtoul(argv[1], nullptr, 10) : 3;
    const char *only = argc > 2 ? argv[2] : nullptr;
    const AscendTwinImage *image = ascend_twin_image();
    AscendTwinChip a2{"910b3", 2201, 20, 40, 192 * 1024 - 256, 512 * 1024, 65536, 65536, 131072, 1024, 7168, 0, 0};
    AscendTwinChip a5{"950", 3510, 32, 64, 248 * 1024, 512 * 1024, 65536, 65536, 262144, 4096, 16384, 4096, 4096};
    int failed = 0, passed = 0;
    std::vector<unsigned char> gm((2u << 20) + 512);
    for (size_t k = 0; k < image->kernel_count; k++) {
        const AscendTwinKernel &kernel = image->kernels[k];
        if (only != nullptr && strstr(kernel.name, only) == nullptr) {
            continue;
        }
        // "name @ page @ blocks"; a page "!rule" must be stopped with that rule, or one of "!rule|rule".
        std::string page = strstr(kernel.name, " @ ") + 3;
        const unsigned long blocks = strtoul(page.c_str() + page.rfind(" @ ") + 3, nullptr, 10);
        page.resize(page.rfind(" @ "));
        const std::string rule = page[0] == '!' ? page.substr(1) : "";
        bool good = true;
        for (unsigned long s = 0; s <= seeds && good; s++) {
            auto base = (reinterpret_cast<uint64_t>(gm.data()) + 511) / 512 * 512;
            const AscendTwinMemory memory[2] = {{base, 1u << 20, ASCEND_TWIN_BUFFER, "gm"},
                                                {base + (1u << 20), 1u << 20, ASCEND_TWIN_WORKSPACE, "workspace"}};
            AscendTwinLaunch l{};
            l.abi = ASCEND_TWIN_ABI;
            l.kernel = static_cast<uint32_t>(k);
            l.blocks = static_cast<uint32_t>(blocks);
            l.mode = s == 0 ? ASCEND_TWIN_FAST : ASCEND_TWIN_CHAOS;
            l.seed = s;
            l.verbose = getenv("VERBOSE") != nullptr;
            l.chip = image->arch == 3510 ? &a5 : &a2;
            l.memory = memory;
            l.memories = 2;
            l.args = reinterpret_cast<const uint8_t *>(&base);
            l.args_bytes = 8;
            const AscendTwinResult *r = image->run(&l);
            const bool stopped = r->error != nullptr;
            if (!rule.empty() && !(stopped && ("|" + rule + "|").find("|" + std::string(r->error->rule_name) + "|") != std::string::npos)) {
                good = false;
                printf("FAIL %s (%s %lu): expected %s, %s\n", kernel.name, s == 0 ? "fast" : "chaos", s, rule.c_str(),
                       stopped ? r->error->message : "it ran to its end");
            } else if (rule.empty() && stopped) {
                good = false;
                printf("FAIL %s (%s %lu)\n  %s: %s\n  --> %s:%u (%s, pipe %s)\n", kernel.name, s == 0 ? "fast" : "chaos", s,
                       r->error->rule_name, r->error->message, r->error->site.file, r->error->site.line, r->error->core,
                       r->error->pipe);
            }
            image->free_result(r);
        }
        good ? passed++ : failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
