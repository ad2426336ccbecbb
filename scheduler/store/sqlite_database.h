// A thin, owning layer over the SQLite C interface: one connection, statements
// prepared once, transactions that roll back unless committed. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tessera::scheduler {

class SqliteDatabase;

// A prepared statement. Bind in order, Step until false, then Reset (also done by the next Bind after a
// Reset).
class SqliteStatement {
 public:
  SqliteStatement() = default;
  // Starts a new execution.
  SqliteStatement& Begin();
  SqliteStatement& Bind(absl::string_view bytes);
  SqliteStatement& Bind(int64_t number);
  // True: a row is there. False: done.
  absl::StatusOr<bool> Step();
  // For statements without rows.
  absl::Status Run();
  std::string Bytes(int column) const;
  int64_t Number(int column) const;
  int64_t Changes() const;  // rows changed by the last execution

 private:
  friend class SqliteDatabase;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  SqliteDatabase* database_ = nullptr;
  int bound_ = 0;
};

class SqliteDatabase {
 public:
  // Creates the file (mode 0600) when missing. FailedPrecondition when another process holds it
  // or its schema is newer than `schema_version`; DataLoss when it is no database or damaged; every
  // error names the file. `create` is run once on a new file.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path, int schema_version,
                                                              const char* create);
  absl::StatusOr<SqliteStatement> Prepare(const char* sql);
  absl::Status Execute(const char* sql);
  absl::Status Error(absl::string_view doing) const;  // of the last call

 private:
  friend class SqliteStatement;
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  absl::Status Configure(int schema_version, const char* create);
  absl::StatusOr<int64_t> Pragma(const char* name);

  std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
};

class SqliteTransaction {
 public:
  explicit SqliteTransaction(SqliteDatabase* database) : database_(database) {}
  ~SqliteTransaction();
  absl::Status Begin();
  absl::Status Commit();

 private:
  SqliteDatabase* database_;
  bool open_ = false;
};

}  // namespace tessera::scheduler
