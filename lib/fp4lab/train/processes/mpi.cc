// Processes by MPI. An error of MPI ends all processes (MPI_ERRORS_ARE_FATAL), as does a process
// that ends without MPI_Finalize.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/step_parts.h"
#include "fp4lab/train/processes/processes.h"

namespace fp4lab {
namespace {

// The floats that a process sends, and receives, at a time: 16 MiB.
constexpr std::size_t kPieceFloats = std::size_t{1} << 22;

// MPI in this process. It can begin once only, so it lasts from the first engine to the process's
// end, and the processes end together. After an error it is left open: then mpirun ends the other
// processes as soon as this one has ended.
class Session {
 public:
  static Session& Begun() {
    static Session session;
    return session;
  }

  void LeaveOpen() { is_left_open_ = true; }

 private:
  Session() {
    int given = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
    std::atexit([] {
      if (!Begun().is_left_open_) MPI_Finalize();
    });
  }

  bool is_left_open_ = false;
};

int RankInMpi() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int SizeInMpi() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

// The texts of all processes, on rank 0; nothing on the others.
std::vector<std::string> TextsOnFirst(const std::string& own) {
  const bool is_first = RankInMpi() == 0;
  const int size = static_cast<int>(own.size());
  std::vector<int> sizes(is_first ? static_cast<std::size_t>(SizeInMpi()) : 0);
  MPI_Gather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<int> firsts(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), firsts.begin(), 0);
  const int all = std::accumulate(sizes.begin(), sizes.end(), 0);
  std::string joined(static_cast<std::size_t>(all), '\0');
  MPI_Gatherv(own.data(), size, MPI_CHAR, joined.data(), sizes.data(), firsts.data(), MPI_CHAR, 0,
              MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    texts.push_back(
        joined.substr(static_cast<std::size_t>(firsts[i]), static_cast<std::size_t>(sizes[i])));
  }
  return texts;
}

// The text of rank 0, on all processes.
std::string TextOfFirst(std::string text) {
  int size = static_cast<int>(text.size());
  MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
  text.resize(static_cast<std::size_t>(size));
  MPI_Bcast(text.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD);
  return text;
}

// Why the first process that differs from rank 0 does; "" if none does. The same on all processes.
std::string WhyAnyApart(const World& world) {
  const std::vector<std::string> introductions = TextsOnFirst(IntroductionOf(world).dump());
  std::string why;
  for (std::size_t i = 1; i < introductions.size() && why.empty(); ++i) {
    why = WhyApart(Json::parse(introductions[0]), Json::parse(introductions[i]));
  }
  return TextOfFirst(why);
}

// The processes on this host.
int SizeOnHost() {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int size = 0;
  MPI_Comm_size(host, &size);
  MPI_Comm_free(&host);
  return size;
}

// The first text of those of all processes that is not empty; the same on all processes.
std::string FirstOf(const std::string& own) {
  const std::vector<std::string> texts = TextsOnFirst(own);
  const auto first = std::find_if(texts.begin(), texts.end(),
                                  [](const std::string& text) { return !text.empty(); });
  return TextOfFirst(first == texts.end() ? "" : *first);
}

class MpiProcesses final : public Processes {
 public:
  explicit MpiProcesses(const World& world) : rank_(world.rank), size_(world.size) {}

  ~MpiProcesses() override {
    if (std::uncaught_exceptions() > 0) Session::Begun().LeaveOpen();
  }

  int Rank() const override { return rank_; }
  int Size() const override { return size_; }

  void AddInOrder(std::span<const float> x, std::span<float> total) override {
    const StepScope part(StepPart::kCommunication);
    const std::vector<Slice> slices = SlicesOf(total.size(), size_);
    ForPieces(slices, [&](std::size_t first, std::size_t length) {
      for (int r = 0; r < size_; ++r) {
        const Slice piece = PieceOf(slices, r, first, length);
        std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(piece.first), piece.size(),
                    sent_.begin() + Place(r, length));
      }
      const int count = static_cast<int>(length);
      MPI_Alltoall(sent_.data(), count, MPI_FLOAT, received_.data(), count, MPI_FLOAT,
                   MPI_COMM_WORLD);
      const Slice own = PieceOf(slices, rank_, first, length);
      for (int r = 0; r < size_; ++r) {
        AddTo(std::span<const float>(received_.begin() + Place(r, length), own.size()),
              total.subspan(own.first, own.size()));
      }
    });
  }

  void ShareSlices(std::span<const Slice> slices, std::span<float> total) override {
    const StepScope part(StepPart::kCommunication);
    ForPieces(slices, [&](std::size_t first, std::size_t length) {
      const Slice own = PieceOf(slices, rank_, first, length);
      std::copy_n(total.begin() + static_cast<std::ptrdiff_t>(own.first), own.size(),
                  sent_.begin());
      const int count = static_cast<int>(length);
      MPI_Allgather(sent_.data(), count, MPI_FLOAT, received_.data(), count, MPI_FLOAT,
                    MPI_COMM_WORLD);
      for (int r = 0; r < size_; ++r) {
        const Slice piece = PieceOf(slices, r, first, length);
        std::copy_n(received_.begin() + Place(r, length), piece.size(),
                    total.begin() + static_cast<std::ptrdiff_t>(piece.first));
      }
    });
  }

  std::vector<double> Gather(std::span<const double> own) override {
    const StepScope part(StepPart::kCommunication);
    std::vector<double> all(own.size() * static_cast<std::size_t>(size_));
    const int count = static_cast<int>(own.size());
    MPI_Allgather(own.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, MPI_COMM_WORLD);
    return all;
  }

  void Max(std::span<float> x) override {
    const StepScope part(StepPart::kCommunication);
    for (std::size_t first = 0; first < x.size(); first += kPieceFloats) {
      const int count = static_cast<int>(std::min(kPieceFloats, x.size() - first));
      MPI_Allreduce(MPI_IN_PLACE, x.data() + first, count, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    }
  }

  bool Any(bool said) override {
    int any = said ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return any != 0;
  }

 private:
  // Calls act(first, length) for the elements first to first + length of all slices, with room for
  // that many of each process in sent_ and received_.
  template <class Act>
  void ForPieces(std::span<const Slice> slices, const Act& act) {
    std::size_t longest = 0;
    for (const Slice& slice : slices) longest = std::max(longest, slice.size());
    const std::size_t most = std::max<std::size_t>(1, kPieceFloats / slices.size());
    const std::size_t room = std::min(most, longest) * slices.size();
    sent_.resize(std::max(sent_.size(), room));
    received_.resize(std::max(received_.size(), room));
    for (std::size_t first = 0; first < longest; first += most) {
      act(first, std::min(most, longest - first));
    }
  }

  // The elements first to first + length of the slice of `rank`, as far as the slice goes.
  static Slice PieceOf(std::span<const Slice> slices, int rank, std::size_t first,
                       std::size_t length) {
    const Slice& slice = slices[static_cast<std::size_t>(rank)];
    const std::size_t begin = std::min(slice.end, slice.first + first);
    return {begin, std::min(slice.end, begin + length)};
  }

  static std::ptrdiff_t Place(int rank, std::size_t length) {
    return rank * static_cast<std::ptrdiff_t>(length);
  }

  int rank_, size_;
  std::vector<float> sent_, received_;
};

}  // namespace

std::unique_ptr<Processes> MakeMpiProcesses(
    const World& world, const std::string& where,
    const std::function<std::string(int on_host)>& why_not) {
  Session& session = Session::Begun();
  std::string why;
  if (RankInMpi() != world.rank || SizeInMpi() != world.size) {
    why = "the launcher says process " + std::to_string(world.rank) + " of " +
          std::to_string(world.size) + ", and the MPI library process " +
          std::to_string(RankInMpi()) + " of " + std::to_string(SizeInMpi()) +
          "; use the launcher of the library that this program was built with";
  } else {
    why = WhyAnyApart(world);
    if (why.empty()) why = FirstOf(why_not(SizeOnHost()));
  }
  if (!why.empty()) {
    session.LeaveOpen();
    throw Error(where, why);
  }
  return std::make_unique<MpiProcesses>(world);
}

std::string MpiLibrary() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int size = 0;
  MPI_Get_library_version(text.data(), &size);
  const std::string version = text.data();
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace fp4lab
