#include "scheduler/store/sqlite_database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::scheduler {
namespace {

constexpr int kApplicationId = 0x54455353;  // "TESS"
constexpr int kBusyMilliseconds = 2000;

}  // namespace

void SqliteStatement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
void SqliteDatabase::Close::operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }

SqliteStatement& SqliteStatement::Begin() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  bound_ = 0;
  return *this;
}

SqliteStatement& SqliteStatement::Bind(absl::string_view bytes) {
  sqlite3_bind_blob64(statement_.get(), ++bound_, bytes.empty() ? "" : bytes.data(), bytes.size(),
                      SQLITE_TRANSIENT);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int64_t number) {
  sqlite3_bind_int64(statement_.get(), ++bound_, number);
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int rc = sqlite3_step(statement_.get());
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) {
    sqlite3_reset(statement_.get());
    return false;
  }
  absl::Status error = database_->Error("accessing");
  sqlite3_reset(statement_.get());
  return error;
}

absl::Status SqliteStatement::Run() {
  absl::StatusOr<bool> row = Step();
  if (row.ok() && *row) sqlite3_reset(statement_.get());
  return row.status();
}

std::string SqliteStatement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return data == nullptr ? std::string()
                         : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

int64_t SqliteStatement::Number(int column) const { return sqlite3_column_int64(statement_.get(), column); }
int64_t SqliteStatement::Changes() const { return sqlite3_changes64(database_->handle_.get()); }

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path,
                                                                     int schema_version, const char* create) {
  auto database = std::make_unique<SqliteDatabase>();
  database->path_ = path;
  sqlite3* handle = nullptr;
  // SQLite would create it with the umask's mode; its journals get the file's. Never opened beside
  // SQLite when it exists: closing it would drop the locks this process holds.
  if (const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); fd >= 0) ::close(fd);
  const int rc = sqlite3_open_v2(path.c_str(), &handle,
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  database->handle_.reset(handle);
  absl::Status status =
      rc == SQLITE_OK ? database->Configure(schema_version, create) : database->Error("opening");
  TESSERA_RETURN_IF_ERROR(status);
  return database;
}

absl::Status SqliteDatabase::Configure(int schema_version, const char* create) {
  sqlite3_extended_result_codes(handle_.get(), 1);
  sqlite3_busy_timeout(handle_.get(), kBusyMilliseconds);
  // One owner per file: a second daemon on the same state must fail instead of
  // starting every job twice. The lock ends with the process, however it ends.
  TESSERA_RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
  TESSERA_ASSIGN_OR_RETURN(const int64_t version, Pragma("user_version"));
  TESSERA_ASSIGN_OR_RETURN(const int64_t application, Pragma("application_id"));
  TESSERA_ASSIGN_OR_RETURN(const int64_t tables, Pragma("schema_version"));
  const bool fresh = version == 0 && application == 0 && tables == 0;
  if (!fresh && application != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat("'", path_, "' is a database of another program"));
  }
  if (version > schema_version) {
    return absl::FailedPreconditionError(absl::StrCat("'", path_, "' was written by a newer version (schema ",
                                                      version, ", this program knows ", schema_version, ")"));
  }
  // WAL with NORMAL loses nothing when the process is killed; a power cut may lose the last moments.
  TESSERA_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
  TESSERA_RETURN_IF_ERROR(Execute("PRAGMA synchronous=NORMAL"));
  TESSERA_RETURN_IF_ERROR(Execute("PRAGMA foreign_keys=ON"));
  SqliteTransaction transaction(this);
  TESSERA_RETURN_IF_ERROR(transaction.Begin());  // takes the lock now, not at the first job
  if (fresh) {
    TESSERA_RETURN_IF_ERROR(Execute(create));
    TESSERA_RETURN_IF_ERROR(Execute(absl::StrCat("PRAGMA application_id=", kApplicationId).c_str()));
    TESSERA_RETURN_IF_ERROR(Execute(absl::StrCat("PRAGMA user_version=", schema_version).c_str()));
  }
  TESSERA_RETURN_IF_ERROR(transaction.Commit());
  TESSERA_ASSIGN_OR_RETURN(SqliteStatement check, Prepare("PRAGMA quick_check(1)"));
  TESSERA_ASSIGN_OR_RETURN(const bool row, check.Step());
  if (!row || check.Bytes(0) != "ok") {
    return absl::DataLossError(
        absl::StrCat("'", path_, "' is damaged: ", row ? check.Bytes(0) : "no answer"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SqliteDatabase::Pragma(const char* name) {
  TESSERA_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(absl::StrCat("PRAGMA ", name).c_str()));
  TESSERA_RETURN_IF_ERROR(statement.Step().status());
  return statement.Number(0);
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(const char* sql) {
  sqlite3_stmt* handle = nullptr;
  if (sqlite3_prepare_v3(handle_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &handle, nullptr) != SQLITE_OK) {
    return Error("reading");
  }
  SqliteStatement statement;
  statement.statement_.reset(handle);
  statement.database_ = this;
  return statement;
}

absl::Status SqliteDatabase::Execute(const char* sql) {
  if (sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) return Error("accessing");
  return absl::OkStatus();
}

absl::Status SqliteDatabase::Error(absl::string_view doing) const {
  const int code = handle_ ? sqlite3_extended_errcode(handle_.get()) & 0xff : SQLITE_NOMEM;
  const char* text = handle_ ? sqlite3_errmsg(handle_.get()) : "out of memory";
  std::string message = absl::StrCat(doing, " '", path_, "': ", text);
  switch (code) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return absl::DataLossError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(absl::StrCat(message, "; another process uses it"));
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::FailedPreconditionError(message);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

SqliteTransaction::~SqliteTransaction() {
  if (open_) database_->Execute("ROLLBACK").IgnoreError();
}

absl::Status SqliteTransaction::Begin() {
  TESSERA_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  open_ = true;
  return absl::OkStatus();
}

absl::Status SqliteTransaction::Commit() {
  TESSERA_RETURN_IF_ERROR(database_->Execute("COMMIT"));
  open_ = false;
  return absl::OkStatus();
}

}  // namespace tessera::scheduler
