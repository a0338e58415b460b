// The token ids of a conversation that were really used, where the template renders its text anew.
//
// Contract: pure. A model may spell a word with other tokens than the tokenizer would, and the
// timeline holds what the model said; rendered from text, the answer would come back as other ids,
// and everything behind the first difference would be computed again. Between control tokens (they
// end every word) runs of ids that stand for the same bytes are the same text, so the run that is
// known is taken. The text of the result is that of `rendered`, byte for byte.
#pragma once

#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace sluice {

// known: the timeline of the last turn, its answer last. Runs are compared from the beginning up to
// the first that differs.
std::vector<TokenId> KeepKnownIds(const Tokenizer& tokens, std::span<const TokenId> known,
                                  std::vector<TokenId> rendered);

}  // namespace sluice
