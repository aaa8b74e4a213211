#include "fp4lab/dialect/kept.h"

#include <deque>
#include <mutex>
#include <string>

namespace fp4lab {
namespace {

struct Kept {
  std::string name;  // Dialect::name is a view of it
  Dialect dialect;
};
struct KeptDialects {
  std::mutex mutex;
  std::deque<Kept> list;  // elements do not move
};
KeptDialects& All() {
  static KeptDialects* const all = new KeptDialects;  // used until the process ends
  return *all;
}

const Dialect* Find(const KeptDialects& all, std::string_view name) {
  for (const Kept& kept : all.list) {
    if (kept.name == name) return &kept.dialect;
  }
  return nullptr;
}

}  // namespace

const Dialect* FindKept(std::string_view name) {
  KeptDialects& all = All();
  const std::lock_guard lock(all.mutex);
  return Find(all, name);
}

const Dialect& KeepDialect(Dialect dialect, std::string_view name) {
  KeptDialects& all = All();
  const std::lock_guard lock(all.mutex);
  if (const Dialect* known = Find(all, name)) return *known;
  Kept& kept = all.list.emplace_back();
  kept.name = name;
  dialect.name = kept.name;
  dialect.version = dialect.source = dialect.note = {};
  kept.dialect = dialect;
  return kept.dialect;
}

}  // namespace fp4lab
