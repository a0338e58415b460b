// The architecture pages: one small file each, found by the config's arch.
//
// Contract: a page is two functions over a tile, called one after the other. mix is the token mixer
// with its residual (which may be left in a.tmp for feed's norm to add); feed is the MLP with its
// residual, or, in a routed layer, everything up to the experts (Route), after which the runtime
// runs the experts and adds their output. Pages hold no state, no offsets, no I/O and no threads.
#pragma once

#include "model/forward.h"

namespace sluice {

struct ArchPage {
  void (*mix)(Forward& f, const LayerWeights& w) = nullptr;
  void (*feed)(Forward& f, const LayerWeights& w) = nullptr;
};

// nullptr: the architecture is known by name but has no page.
const ArchPage* FindPage(Arch arch);

extern const ArchPage kLlamaPage, kQwen2Page, kQwen3Page, kGemma3Page, kQwen3MoePage, kOlmoePage,
    kGraniteMoePage, kGptOssPage, kQwen3NextPage, kDeepseek2Page;

}  // namespace sluice
