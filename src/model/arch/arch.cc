#include "model/arch/arch.h"

namespace sluice {

const ArchPage* FindPage(Arch arch) {
  switch (arch) {
    case Arch::kLlama:
      return &kLlamaPage;
    case Arch::kQwen2:
      return &kQwen2Page;
    case Arch::kQwen3:
      return &kQwen3Page;
    case Arch::kGemma3:
      return &kGemma3Page;
    case Arch::kQwen3Moe:
      return &kQwen3MoePage;
    case Arch::kOlmoe:
      return &kOlmoePage;
    case Arch::kGranite:
    case Arch::kGraniteMoe:
      return &kGraniteMoePage;
    case Arch::kGptOss:
      return &kGptOssPage;
    case Arch::kQwen3Next:
    case Arch::kQwen35:
    case Arch::kQwen35Moe:
      return &kQwen3NextPage;
    case Arch::kDeepseek2:
      return &kDeepseek2Page;
  }
  return nullptr;
}

}  // namespace sluice
