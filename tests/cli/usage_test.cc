// The command line's manners: usage errors, exit codes, one-line messages, help, failing outputs.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/process.h"

namespace sluice::test {
namespace {

struct UsageCase {
  std::vector<std::string> args;
  std::vector<std::string> mentions;
};

// Each must exit with 2 and one line on stderr that names what is wrong; nothing on stdout.
const UsageCase kUsageCases[] = {
    {{}, {"no verb", "run, plan"}},
    {{"frobnicate"}, {"unknown verb 'frobnicate'", "run, plan, inspect"}},
    {{"rnu"}, {"did you mean run?"}},
    {{"run", "--budgte", "1G"}, {"--budgte", "did you mean --budget?"}},
    {{"run", "--tmep=0.7"}, {"--tmep", "did you mean --temp?"}},
    {{"run", "--zzzzzzzz"}, {"--zzzzzzzz", "--help"}},
    {{"run", "a.gguf", "b.gguf", "-p", "x"}, {"unexpected argument 'b.gguf'"}},
    {{"run", "-p"}, {"-p", "needs a value"}},
    {{"run", "-p", "x", "--ctx", "12x"}, {"--ctx", "'12x' is not a whole number"}},
    {{"run", "-p", "x", "--ctx", ""}, {"--ctx", "not a whole number"}},
    {{"run", "-p", "x", "--ctx", "0"}, {"--ctx", "'0' is out of range"}},
    {{"run", "-p", "x", "--ctx", "-5"}, {"--ctx", "'-5' is out of range"}},
    {{"run", "-p", "x", "-c", "99999999999999999999"}, {"--ctx", "out of range"}},
    {{"run", "-p", "x", "--threads", "1e3"}, {"--threads", "'1e3'"}},
    {{"run", "-p", "x", "-n", "-2"}, {"--predict", "'-2' is out of range"}},
    {{"run", "-p", "x", "--budget", "lots"}, {"--budget", "'lots' is not a size"}},
    {{"run", "-p", "x", "--budget", "0"}, {"--budget"}},
    {{"run", "-p", "x", "--budget", "-1G"}, {"--budget"}},
    {{"run", "-p", "x", "--temp", "-0.5"}, {"--temp", "out of range"}},
    {{"run", "-p", "x", "--temp", "nan"}, {"--temp", "not a number"}},
    {{"run", "-p", "x", "--temp", "inf"}, {"--temp", "out of range"}},
    {{"run", "-p", "x", "--top-p", "1.5"}, {"--top-p", "want 0 to 1"}},
    {{"run", "-p", "x", "--min-p", "0.1.2"}, {"--min-p", "not a number"}},
    {{"run", "-p", "x", "--top-k", "-1"}, {"--top-k"}},
    {{"run", "-p", "x", "--repeat-penalty", "0"}, {"--repeat-penalty"}},
    {{"run", "-p", "x", "--seed", "1.5"}, {"--seed"}},
    {{"run", "-p", "x", "--logit-bias", "abc"}, {"--logit-bias", "'abc'", "ID=B"}},
    {{"run", "-p", "x", "--logit-bias", "-2=1"}, {"--logit-bias", "'-2=1'"}},
    {{"run", "-p", "x", "--logit-bias", "2=x"}, {"--logit-bias"}},
    {{"run", "-p", "x", "--kv", "f64"}, {"--kv", "'f64'", "f32|f16|q8"}},
    {{"run", "-p", "x", "--io", "mmap"}, {"--io", "uring|pread|buffered"}},
    {{"run", "-p", "x", "--cpus", "0,a"}, {"--cpus", "'a'"}},
    {{"run", "-p", "x", "--cpus", ""}, {"--cpus"}},
    {{"run", "-p", "x", "--cpus", "1-0"}, {"--cpus", "out of range"}},
    {{"run", "-p", "x", "--cpus", "4095"}, {"--cpus", "processor 4095", "may use"}},
    {{"run", "-p", "x", "--cpus", "0-4095"}, {"--cpus", "cannot run on processor"}},
    {{"run", "-p", "x", "--set", "novalue"}, {"--set", "key=JSON"}},
    {{"run", "-p", "x", "--set", "k=nope"}, {"--set", "'nope' is no JSON"}},
    {{"run", "-p", "x", "--ids", "1"}, {"only one of -p, -f and --ids"}},
    {{"run", "m.gguf", "-m", "n.gguf", "-p", "x"}, {"twice"}},
    {{"run", "-p", "x", "--special"}, {"--special", "--raw"}},
    {{"tokenize"}, {"MODEL is missing"}},
    {{"tokenize", "m.gguf"}, {"--text", "-f"}},
    {{"tokenize", "m.gguf", "--text", "a", "-f", "b"}, {"exactly one"}},
    {{"tokenize", "m.gguf", "--ids", "1"}, {"--decode"}},
    {{"render", "-f", "x.json"}, {"MODEL or --template"}},
    {{"render", "--template", "t", "--now", "yesterday"}, {"--now", "'yesterday'"}},
    {{"render", "--template", "t", "--now", "2025-02-30T00:00:00"}, {"--now"}},
    {{"quant", "decode", "--type", "Q4_K", "in"}, {"OUT is missing"}},
    {{"quant", "recode", "--type", "Q4_K", "in", "out"}, {"'recode'"}},
    {{"quant", "decode", "in", "out"}, {"--type is missing"}},
    {{"quant", "decode", "--type", "Q9_Z", "in", "out"}, {"unknown weight type Q9_Z", "Q4_K"}},
    {{"logits", "m.gguf", "--out", "x.npy"}, {"--ids"}},
    {{"logits", "m.gguf", "--ids", "1"}, {"--out"}},
    {{"logits", "m.gguf", "--ids", "1,x", "--out", "x.npy"}, {"'x' (number 2)"}},
    {{"logits", "m.gguf", "--ids", "1,-1", "--out", "x.npy"}, {"'-1' (number 2)"}},
    {{"logits", "m.gguf", "--ids", ",", "--out", "x.npy"}, {"no token ids"}},
    {{"plan"}, {"MODEL is missing"}},
    {{"plan", "--shape", "x"}, {"unknown shape 'x'", "qwen3-30b-a3b", "olmoe-7b"}},
    {{"plan", "--shape", ""}, {"unknown shape ''", "gpt-oss-120b"}},
    {{"plan", "m.gguf", "--shape", "olmoe-7b"}, {"MODEL and --shape", "m.gguf"}},
    {{"bench", "--repeat", "0"}, {"--repeat"}},
    {{"bench", "--kernels", "--isa", "sparc"}, {"'sparc' is not available", "scalar"}},
    {{"bench", "--kernels", "--seconds", "0"}, {"--seconds"}},
};

std::string Joined(const std::vector<std::string>& args) {
  std::string text = "sluice";
  for (const std::string& arg : args) text += " " + arg;
  return text;
}

bool IsOneErrorLine(const std::string& err) {
  return err.starts_with("sluice: error: ") && err.ends_with('\n') &&
         std::count(err.begin(), err.end(), '\n') == 1;
}

TEST(Usage, ErrorsAreOneLineAndExitTwo) {
  for (const UsageCase& c : kUsageCases) {
    const ProcessResult result = Sluice(c.args);
    EXPECT_EQ(result.code, 2) << Joined(c.args) << "\n" << result.err;
    EXPECT_EQ(result.out, "") << Joined(c.args);
    EXPECT_TRUE(IsOneErrorLine(result.err)) << Joined(c.args) << "\n" << result.err;
    for (const std::string& text : c.mentions) {
      EXPECT_NE(result.err.find(text), std::string::npos) << Joined(c.args) << "\n" << result.err;
    }
  }
}

TEST(Usage, HelpGoesToStdoutAndNamesEveryPromisedOption) {
  const ProcessResult all = Sluice({"--help"});
  EXPECT_EQ(all.code, 0);
  EXPECT_EQ(all.err, "");
  for (const char* verb :
       {"run", "plan", "inspect", "tokenize", "render", "quant", "logits", "bench"}) {
    EXPECT_NE(all.out.find(verb), std::string::npos) << verb;
    const ProcessResult help = Sluice({verb, "--help"});
    EXPECT_EQ(help.code, 0) << verb;
    EXPECT_NE(help.out.find(std::string("sluice ") + verb), std::string::npos) << help.out;
  }
  const std::string run = Sluice({"run", "-h"}).out;
  for (const char* option : {"-p,",
                             "-f,",
                             "--ids",
                             "--budget",
                             "-c,--ctx",
                             "-n,",
                             "--greedy",
                             "--temp",
                             "--top-k",
                             "--top-p",
                             "--min-p",
                             "--typical",
                             "--repeat-penalty",
                             "--presence-penalty",
                             "--frequency-penalty",
                             "--dry-multiplier",
                             "--logit-bias",
                             "--stop",
                             "-s,--seed",
                             "--system",
                             "--raw",
                             "-t,--threads",
                             "--kv",
                             "--act",
                             "--io",
                             "--isa",
                             "--lookahead",
                             "-b,--chunk",
                             "--mlock",
                             "--cpus",
                             "--stats",
                             "--json",
                             "--ignore-eos",
                             "--context-full",
                             "--policy",
                             "--route-trace",
                             "--timeline",
                             "-m,"}) {
    EXPECT_NE(run.find(option), std::string::npos) << option << "\n" << run;
  }
  EXPECT_EQ(Sluice({"--version"}).code, 0);
}

TEST(Usage, NoColourWhereThereIsNoTerminal) {
  EXPECT_EQ(Sluice({"frobnicate"}).err.find('\033'), std::string::npos);
}

TEST(Usage, MissingDefaultModelSaysHowToGetIt) {
  TempFolder dir;
  ProcessOptions options;
  options.environment = {{"SLUICE_MODELS", dir.path()}};
  const ProcessResult result = Sluice({"run", "-p", "hi"}, options);
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find(dir.path()), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("tools/setup"), std::string::npos) << result.err;
}

TEST(Usage, EmptyStandardInputIsNoPrompt) {
  TempFolder dir;
  WriteFile(dir / "m.gguf", "GGUF");
  const ProcessResult result = Sluice({"run", dir / "m.gguf"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("no prompt"), std::string::npos) << result.err;
}

TEST(Usage, FilesThatAreNotThere) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"run", "/nonexistent/m.gguf", "-p", "x"},
           {"plan", "/nonexistent/m.gguf"},
           {"inspect", "/nonexistent/m.gguf"},
           {"tokenize", "/nonexistent/m.gguf", "--text", "x"},
           {"logits", "/nonexistent/m.gguf", "--ids", "1", "--out", "/tmp/never.npy"},
           {"run", "x.gguf", "-f", "/nonexistent/prompt"},
           {"quant", "decode", "--type", "Q4_0", "/nonexistent/in", "/tmp/never.bin"}}) {
    const ProcessResult result = Sluice(args);
    EXPECT_EQ(result.code, 5) << Joined(args) << "\n" << result.err;
    EXPECT_TRUE(IsOneErrorLine(result.err)) << result.err;
    EXPECT_NE(result.err.find("/nonexistent/"), std::string::npos) << result.err;
  }
  EXPECT_FALSE(Exists("/tmp/never.npy"));
}

// A result that cannot be written is an error, not silence.
TEST(Usage, FullDeviceIsAnError) {
  if (!Exists("/dev/full")) GTEST_SKIP() << "SKIP: no /dev/full";
  ProcessOptions options;
  options.stdout_path = "/dev/full";
  const ProcessResult result = Sluice({"--help"}, options);
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_NE(result.err.find("standard output"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace sluice::test
