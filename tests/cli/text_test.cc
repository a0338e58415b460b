// `sluice tokenize` and `sluice render` on the shared cases, byte for byte.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/test_data.h"

namespace sluice::test {
namespace {

using nlohmann::ordered_json;

std::vector<int> IdsOf(const ProcessResult& result) {
  if (result.code != 0) return {-1};
  return ordered_json::parse(result.out)["ids"].get<std::vector<int>>();
}

std::string List(const std::vector<int>& ids) {
  std::string text;
  for (int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

TEST(Tokenize, SharedCases) {
  const std::string model = Shared("cases/dev/gguf/ok-llama-f32.gguf");
  if (model.empty()) GTEST_SKIP() << "SKIP: no shared cases";
  const auto cases = ordered_json::parse(ReadFile(Shared("cases/dev/tokenize.json")))["cases"];
  TempFolder dir;
  for (const auto& c : cases) {
    const std::string id = c["id"];
    if (c.contains("text_repeat")) {
      std::string text;
      for (int i = 0; i < c["text_repeat"][1].get<int>(); ++i) text += c["text_repeat"][0];
      WriteFile(dir / "text", text + c["text_tail"].get<std::string>());
      const auto ids = IdsOf(Sluice({"tokenize", model, "-f", dir / "text", "--json"}));
      EXPECT_EQ(ids.size(), c["n_ids"].get<size_t>()) << id;
      continue;
    }
    const std::string text = c["text"];
    EXPECT_EQ(IdsOf(Sluice({"tokenize", model, "--text", text, "--json"})),
              c["ids_plain"].get<std::vector<int>>())
        << id;
    const auto special = c["ids_special"].get<std::vector<int>>();
    EXPECT_EQ(IdsOf(Sluice({"tokenize", model, "--text", text, "--special", "--json"})), special)
        << id;
    ProcessOptions standard_input;
    standard_input.input = text;
    const ProcessResult plain = Sluice({"tokenize", model, "-f", "-", "--special"}, standard_input);
    EXPECT_EQ(plain.out, List(special) + "\n") << id;
    const ProcessResult back = Sluice({"tokenize", model, "--decode", "--ids", List(special)});
    EXPECT_EQ(back.out, text) << id;
  }
}

TEST(Tokenize, IdsOutsideTheVocabularyAreNamed) {
  const std::string model = Shared("cases/dev/gguf/ok-llama-f32.gguf");
  if (model.empty()) GTEST_SKIP() << "SKIP: no shared cases";
  const ProcessResult result = Sluice({"tokenize", model, "--decode", "--ids", "1,999999"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("999999"), std::string::npos) << result.err;
  EXPECT_EQ(Sluice({"tokenize", model, "--decode", "--ids", ""}).out, "");
  EXPECT_EQ(IdsOf(Sluice({"tokenize", model, "--text", "", "--json"})), std::vector<int>{});
}

// Folders that hold only a tokenizer.json, as tools/setup fetches them: a few cases each, end to
// end.
TEST(Tokenize, TokenizerFolders) {
  const std::string folder = ModelPath("tokenizers/");
  int done = 0;
  for (const char* name : {"qwen3"}) {  // the others: tests/text, without a process each
    const std::string golden = Shared(std::string("golden/tokenizers/") + name + ".json");
    if (golden.empty() || !Exists(folder + name)) continue;
    const auto cases = ordered_json::parse(ReadFile(golden))["cases"];
    for (size_t i = 20; i < cases.size(); i += cases.size() / 2 + 1) {
      const std::string text = cases[i]["text"];
      const auto want = cases[i]["ids"].get<std::vector<int>>();
      EXPECT_EQ(IdsOf(Sluice({"tokenize", folder + name, "--text", text, "--special", "--json"})),
                want)
          << name << ": " << text;
      if (i > 20) continue;  // building a table of 11 MB of JSON takes its time
      const ProcessResult back =
          Sluice({"tokenize", folder + name, "--decode", "--json", "--ids", List(want)});
      EXPECT_EQ(ordered_json::parse(back.out)["text"], cases[i]["decoded"]) << name << ": " << text;
    }
    ++done;
  }
  if (done == 0) GTEST_SKIP() << "SKIP: no tokenizer folders (tools/setup) or no goldens";
}

// One conversation case -> the arguments and files that render it.
ProcessResult RenderCase(const TempFolder& dir, const ordered_json& set, const ordered_json& c) {
  WriteFile(dir / "t.jinja", set["template"]);
  WriteFile(dir / "special.json", set["special_tokens"].dump());
  WriteFile(dir / "m.json", c["messages"].dump());
  std::vector<std::string> args = {"render",      "--template",         dir / "t.jinja",
                                   "--special",   dir / "special.json", "-f",
                                   dir / "m.json"};
  if (set.contains("strftime_now")) {
    args.insert(args.end(), {"--now", set["strftime_now"].get<std::string>()});
  }
  if (c["tools"].is_array()) {
    WriteFile(dir / "tools.json", c["tools"].dump());
    args.insert(args.end(), {"--tools", dir / "tools.json"});
  }
  if (!c["add_generation_prompt"].get<bool>()) args.push_back("--no-generation-prompt");
  for (const auto& [key, value] : c["variables"].items()) {
    args.insert(args.end(), {"--set", key + "=" + value.dump()});
  }
  return Sluice(args);
}

TEST(Render, GoldenConversations) {
  if (Shared("golden/chat").empty()) GTEST_SKIP() << "SKIP: no golden/chat";
  TempFolder dir;
  for (const char* name :
       {"gemma3", "gptoss", "llama3", "llama3_1", "qwen2_5", "qwen3", "qwen3_5"}) {
    const auto set =
        ordered_json::parse(ReadFile(Shared(std::string("golden/chat/") + name + ".json")));
    for (const auto& c : set["cases"]) {
      const ProcessResult result = RenderCase(dir, set, c);
      if (c.contains("error")) {
        const std::string error = c["error"];
        EXPECT_EQ(result.code, 7) << name << ": " << c["name"];
        EXPECT_NE(result.err.find(error.substr(error.find(": ") + 2)), std::string::npos)
            << result.err;
        continue;
      }
      EXPECT_EQ(result.code, 0) << name << ": " << c["name"] << result.err;
      EXPECT_EQ(result.out, c["rendered"].get<std::string>()) << name << ": " << c["name"];
    }
  }
}

TEST(Render, SharedTemplateCases) {
  const std::string file = Shared("cases/dev/templates.json");
  if (file.empty()) GTEST_SKIP() << "SKIP: no shared cases";
  TempFolder dir;
  for (const auto& c : ordered_json::parse(ReadFile(file))["cases"]) {
    WriteFile(dir / "t.jinja", c["template"]);
    WriteFile(dir / "m.json", c["context"]["messages"].dump());
    std::vector<std::string> args = {"render", "--template", dir / "t.jinja", "-f", dir / "m.json"};
    for (const auto& [key, value] : c["context"].items()) {
      if (key == "tools") {
        WriteFile(dir / "tools.json", value.dump());
        args.insert(args.end(), {"--tools", dir / "tools.json"});
      } else if (key != "messages") {
        args.insert(args.end(), {"--set", key + "=" + value.dump()});
      }
    }
    const ProcessResult result = Sluice(args);
    if (c.contains("expected")) {
      EXPECT_EQ(result.out, c["expected"].get<std::string>()) << c["id"] << result.err;
      EXPECT_EQ(result.code, 0) << c["id"];
    } else {
      EXPECT_EQ(result.code, 7) << c["id"];
      EXPECT_NE(result.err.find(c["expected_error_contains"].get<std::string>()), std::string::npos)
          << result.err;
    }
  }
}

TEST(Render, InputsAreChecked) {
  TempFolder dir;
  WriteFile(dir / "t.jinja", "{{ messages[0].content }}|{{ strftime_now('%Y-%m-%d %H:%M') }}");
  WriteFile(dir / "m.json", R"([{"role":"user","content":"hi"}])");
  WriteFile(dir / "request.json", R"({"messages":[{"role":"user","content":"hi"}]})");
  WriteFile(dir / "bad.json", "[{");
  WriteFile(dir / "no.json", R"({"x":1})");
  const auto render = [&](const std::string& messages, const std::string& now) {
    return Sluice({"render", "--template", dir / "t.jinja", "-f", dir / messages, "--now", now});
  };
  EXPECT_EQ(render("m.json", "2024-02-29T23:59:58").out, "hi|2024-02-29 23:59");
  EXPECT_EQ(render("request.json", "1999-12-31").out, "hi|1999-12-31 00:00");
  for (const char* file : {"bad.json", "no.json"}) {
    const ProcessResult result = render(file, "2024-01-01");
    EXPECT_EQ(result.code, 2) << file;
    EXPECT_NE(result.err.find(file), std::string::npos) << result.err;
  }
  WriteFile(dir / "t.jinja", "line one\n{% if %}");
  const ProcessResult broken = render("m.json", "2024-01-01");
  EXPECT_EQ(broken.code, 7);
  EXPECT_NE(broken.err.find("chat template"), std::string::npos) << broken.err;
  EXPECT_NE(broken.err.find("line 2"), std::string::npos) << broken.err;
}

}  // namespace
}  // namespace sluice::test
