// The order in which pieces go to the kernel, and what a failure does to a request.
#include <gtest/gtest.h>

#include "io/request_board.h"
#include "scratch.h"

namespace sluice {
namespace {

class BoardTest : public ::testing::Test {
 protected:
  void SetUp() override { file_ = std::move(File::Open(scratch_.path())).value(); }
  ReadRequest Request(uint64_t length, ReadPriority priority = ReadPriority::kDemand,
                      uint64_t offset = 0) {
    ReadRequest r;
    r.length = length;
    r.offset = offset;
    r.priority = priority;
    r.buffer = buffer_.data();
    return r;
  }
  testing::ScratchFile scratch_{10 * 64 * kKiB};
  std::unique_ptr<File> file_;
  testing::Buffer buffer_{kMiB};
};

TEST_F(BoardTest, DemandOvertakesReadAheadBetweenPieces) {
  RequestBoard board({file_.get()}, 512, 64 * kKiB);
  ReadRequest ahead = Request(5 * 64 * kKiB, ReadPriority::kAhead), demand = Request(2 * 64 * kKiB);
  board.Submit(&ahead);
  Piece a, b, c, d;
  ASSERT_TRUE(board.Next(&a));
  board.Submit(&demand);
  ASSERT_TRUE(board.Next(&b));
  ASSERT_TRUE(board.Next(&c));
  ASSERT_TRUE(board.Next(&d));
  EXPECT_EQ(b.slot, demand.slot);
  EXPECT_EQ(c.slot, demand.slot);
  EXPECT_EQ(d.slot, ahead.slot);
  EXPECT_EQ(c.offset, 64 * kKiB);
  EXPECT_EQ(d.offset, 64 * kKiB);
  EXPECT_EQ(board.in_kernel(), 4);
  EXPECT_FALSE(board.Cancel(&ahead)) << "its first piece is in the kernel";
}

TEST_F(BoardTest, PiecesAreEqualAndAligned) {
  RequestBoard board({file_.get()}, 512, 100 * kKiB);
  ReadRequest r = Request(101 * kKiB);
  board.Submit(&r);
  Piece a, b, none;
  ASSERT_TRUE(board.Next(&a) && board.Next(&b));
  EXPECT_FALSE(board.Next(&none));
  EXPECT_EQ(a.length, 52 * kKiB);
  EXPECT_EQ(a.length + b.length, r.length);
  EXPECT_FALSE(board.Finish(b, Status()));
  EXPECT_EQ(board.Reap(), 0);
  EXPECT_TRUE(board.Finish(a, Status()));
  EXPECT_EQ(board.Reap(), 1);
  EXPECT_TRUE(r.done);
}

TEST_F(BoardTest, AFailedPieceDropsTheRestButWaitsForTheKernel) {
  RequestBoard board({file_.get()}, 512, 64 * kKiB);
  ReadRequest r = Request(10 * 64 * kKiB), other = Request(64 * kKiB);
  board.Submit(&r);
  board.Submit(&other);
  Piece a, b, c;
  ASSERT_TRUE(board.Next(&a) && board.Next(&b));
  EXPECT_FALSE(board.Finish(a, Status(Code::kIo, "first")));
  ASSERT_TRUE(board.Next(&c));
  EXPECT_EQ(c.slot, other.slot);
  EXPECT_EQ(board.Reap(), 0);
  EXPECT_TRUE(board.Finish(b, Status(Code::kIo, "second")));
  EXPECT_EQ(board.Reap(), 1);
  EXPECT_TRUE(r.done);
  EXPECT_EQ(r.status.what(), "first");
  EXPECT_EQ(board.outstanding(), 1);
}

TEST_F(BoardTest, ThePiecePastTheEndOwesNothing) {
  RequestBoard board({file_.get()}, 512, 64 * kKiB);
  ReadRequest r = Request(64 * kKiB, ReadPriority::kDemand, 10 * 64 * kKiB - 512);
  board.Submit(&r);
  Piece a;
  ASSERT_TRUE(board.Next(&a));
  EXPECT_EQ(a.valid, 512u);
}

}  // namespace
}  // namespace sluice
