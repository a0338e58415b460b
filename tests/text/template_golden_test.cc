// Published templates and Jinja features against what transformers' Jinja printed
// (tests/fixtures/templates and the shared goldens). Every conversation is rendered twice: plainly,
// and in pieces that must join to the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/test_data.h"
#include "text/chat_template.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kNoon = 1741521600;  // 2025-03-09T12:00:00, the clock of all goldens

fs::path Fixtures() { return fs::path(SLUICE_SOURCE_DIR) / "tests/fixtures/templates"; }

fs::path Shared() { return test::SharedPath(""); }

Json Load(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return Json::parse(text.str());
}

// Renders plainly and in pieces; both must agree.
Result<std::string> RenderBoth(const std::string& source, const RenderRequest& request) {
  SLUICE_ASSIGN(const ChatTemplate tmpl, ChatTemplate::Compile(source));
  const auto pieces = tmpl.RenderPieces(request);
  const auto text = tmpl.Render(request);
  EXPECT_EQ(pieces.ok(), text.ok()) << source;
  if (!text.ok()) return text.status();
  std::string joined;
  for (const auto& piece : *pieces) joined += piece.text;
  EXPECT_EQ(joined, *text);
  return text;
}

// One golden file: a template and its conversations.
void CheckGolden(const fs::path& path) {
  const Json golden = Load(path);
  ASSERT_EQ(golden.at("strftime_now"), "2025-03-09T12:00:00");
  const std::string source = golden.at("template");
  for (const Json& test : golden.at("cases")) {
    SCOPED_TRACE(path.filename().string() + ": " + std::string(test.at("name")));
    RenderRequest request;
    request.messages_json = test.at("messages").dump();
    if (!test.at("tools").is_null()) request.tools_json = test.at("tools").dump();
    request.extra_json = test.at("variables").dump();
    request.special_tokens_json = golden.at("special_tokens").dump();
    request.add_generation_prompt = test.at("add_generation_prompt");
    request.now_unix = kNoon;
    const auto text = RenderBoth(source, request);
    if (test.contains("rendered")) {
      ASSERT_TRUE(text.ok()) << text.status().ToString();
      EXPECT_EQ(*text, std::string(test.at("rendered")));
    } else {
      ASSERT_FALSE(text.ok());
      const std::string error = test.at("error");  // "TemplateError: what the template says"
      EXPECT_NE(text.status().what().find(error.substr(error.find(": ") + 2)), std::string::npos)
          << text.status().ToString();
      EXPECT_EQ(text.status().code(), Code::kFailed);
    }
  }
}

TEST(TemplateGolden, CommittedTemplates) {
  for (const char* name : {"qwen2_5", "qwen3", "qwen3_5", "gptoss", "smollm2"}) {
    CheckGolden(Fixtures() / (std::string(name) + ".json"));
  }
}

TEST(TemplateGolden, EverySharedTemplate) {
  const fs::path folder = Shared() / "golden/chat";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is absent: llama3 and gemma3 not checked";
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    CheckGolden(entry.path());
    ++files;
  }
  EXPECT_GE(files, 7);
}

// A case gives the variables of the template directly.
RenderRequest FromContext(Json context, const Json& more = Json::object()) {
  context.update(more);
  RenderRequest request;
  request.messages_json = context.value("messages", Json::array()).dump();
  context.erase("messages");
  request.extra_json = context.dump();
  request.add_generation_prompt = false;
  request.now_unix = kNoon;
  return request;
}

void CheckReported(const Json& cases) {
  for (const Json& test : cases.at("cases")) {
    SCOPED_TRACE(std::string(test.at("id")));
    const auto text = RenderBoth(test.at("template"), FromContext(test.at("context")));
    if (test.contains("expected")) {
      ASSERT_TRUE(text.ok()) << text.status().ToString();
      EXPECT_EQ(*text, std::string(test.at("expected")));
    } else {
      ASSERT_FALSE(text.ok());
      EXPECT_NE(text.status().what().find(test.at("expected_error_contains")), std::string::npos);
    }
  }
}

TEST(TemplateGolden, BugsReportedElsewhere) {
  CheckReported(Load(Fixtures() / "reported_bugs.json"));
}

TEST(TemplateGolden, SharedCases) {
  const fs::path path = Shared() / "cases/dev/templates.json";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is absent";
  CheckReported(Load(path));
}

TEST(TemplateGolden, JinjaFeatures) {
  const Json features = Load(Fixtures() / "jinja_features.json");
  const RenderRequest request = FromContext(features.at("context"));
  for (const Json& test : features.at("cases")) {
    SCOPED_TRACE(std::string(test.at("template")));
    const auto text = RenderBoth(test.at("template"), request);
    if (test.contains("expected")) {
      ASSERT_TRUE(text.ok()) << text.status().ToString();
      EXPECT_EQ(*text, std::string(test.at("expected")));
    } else {
      EXPECT_FALSE(text.ok()) << "jinja2 says " << test.at("error") << ", got " << *text;
    }
  }
}

}  // namespace
}  // namespace sluice
