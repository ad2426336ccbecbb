#include "scheduler/store/sqlite_store.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "scheduler/store/sqlite_database.h"
#include "scheduler/store/store_encoding.h"

namespace tessera::scheduler {
namespace {

constexpr int kSchemaVersion = 1;
constexpr char kCreate[] = R"sql(
CREATE TABLE counter(revision INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
CREATE TABLE jobs(id INTEGER PRIMARY KEY, ns BLOB NOT NULL, name BLOB NOT NULL, etag BLOB NOT NULL,
  revision INTEGER NOT NULL, job BLOB NOT NULL, processes BLOB NOT NULL, notes BLOB NOT NULL, UNIQUE(ns, name));
CREATE TABLE requests(id INTEGER PRIMARY KEY AUTOINCREMENT, ns BLOB NOT NULL, request BLOB NOT NULL,
  fingerprint BLOB NOT NULL, revision INTEGER NOT NULL, answer BLOB NOT NULL, UNIQUE(ns, request));
CREATE TABLE attachments(id INTEGER PRIMARY KEY AUTOINCREMENT,
  job INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, kind INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX attachments_by_job ON attachments(job, kind, id);
)sql";

enum Kind : int64_t { kPlan = 1, kEvent = 2 };

struct Statements {
  SqliteStatement next_revision, find_job, find_id, list_jobs, list_namespace, insert_job, update_job,
      delete_job;
  SqliteStatement find_request, insert_request, trim_requests;
  SqliteStatement attach, attachments, trim_attachments;
};

absl::StatusOr<Statements> PrepareAll(SqliteDatabase& db) {
  Statements s;
  const std::pair<SqliteStatement*, const char*> all[] = {
      {&s.next_revision, "UPDATE counter SET revision = revision + 1 RETURNING revision"},
      {&s.find_job, "SELECT id, etag, revision, job, processes, notes FROM jobs WHERE ns = ? AND name = ?"},
      {&s.find_id, "SELECT id, etag FROM jobs WHERE ns = ? AND name = ?"},
      {&s.list_jobs,
       "SELECT id, etag, revision, job, processes, notes FROM jobs WHERE (ns, name) > (?, ?) ORDER BY ns, "
       "name LIMIT ?"},
      {&s.list_namespace,
       "SELECT id, etag, revision, job, processes, notes FROM jobs WHERE ns = ? AND name > ? ORDER BY name "
       "LIMIT ?"},
      {&s.insert_job,
       "INSERT INTO jobs(ns, name, etag, revision, job, processes, notes) VALUES (?, ?, ?, ?, ?, x'', ?)"},
      {&s.update_job,
       "UPDATE jobs SET etag = ?, revision = ?, job = ?, processes = ?, notes = ? WHERE id = ?"},
      {&s.delete_job, "DELETE FROM jobs WHERE id = ?"},
      {&s.find_request, "SELECT fingerprint, revision, answer FROM requests WHERE ns = ? AND request = ?"},
      {&s.insert_request,
       "INSERT INTO requests(ns, request, fingerprint, revision, answer) VALUES (?, ?, ?, ?, ?)"},
      {&s.trim_requests, "DELETE FROM requests WHERE id <= (SELECT max(id) FROM requests) - ?"},
      {&s.attach, "INSERT INTO attachments(job, kind, body) VALUES (?, ?, ?)"},
      {&s.attachments, "SELECT body FROM attachments WHERE job = ? AND kind = ? ORDER BY id"},
      {&s.trim_attachments,
       "DELETE FROM attachments WHERE job = ?1 AND kind = ?2 AND id <= "
       "(SELECT id FROM attachments WHERE job = ?1 AND kind = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)"},
  };
  for (const auto& [statement, sql] : all) {
    TESSERA_ASSIGN_OR_RETURN(*statement, db.Prepare(sql));
  }
  return s;
}

struct Row {
  int64_t id = 0;
  JobRecord record;
};

// Of a job that is there, without what it costs to read it: thousands of workers stand in one.
struct RowId {
  int64_t id = 0;
  std::string etag;
};

absl::StatusOr<Row> ReadRow(const SqliteStatement& statement) {
  Row row;
  row.id = statement.Number(0);
  row.record.revision = statement.Number(2);
  if (!row.record.job.ParseFromString(statement.Bytes(3))) {
    return absl::DataLossError(absl::StrCat("stored job ", row.id, " can't be read"));
  }
  row.record.processes = statement.Bytes(4);
  row.record.notes = statement.Bytes(5);
  return row;
}

class SqliteStore : public JobStore {
 public:
  SqliteStore(std::unique_ptr<SqliteDatabase> database, Statements statements)
      : database_(std::move(database)), sql_(std::move(statements)) {}

  absl::StatusOr<JobRecord> Create(const v1::TrainingJob& job, const std::string& request_id,
                                   const std::string& notes, const v1::Plan* plan) override {
    absl::MutexLock lock(&mutex_);
    SqliteTransaction transaction(database_.get());
    TESSERA_RETURN_IF_ERROR(transaction.Begin());
    const JobKey key = KeyOf(job);
    const std::string fingerprint = CreationFingerprint(job);
    TESSERA_ASSIGN_OR_RETURN(std::optional<JobRecord> seen, FirstAnswer(key.ns, request_id, fingerprint));
    if (seen.has_value()) return *std::move(seen);
    TESSERA_ASSIGN_OR_RETURN(const std::optional<RowId> taken, FindId(key));
    if (taken.has_value()) return JobExists(key);
    JobRecord record;
    record.job = job;
    record.notes = notes;
    TESSERA_RETURN_IF_ERROR(Stamp(record));
    const std::string body = record.job.SerializeAsString();
    TESSERA_RETURN_IF_ERROR(sql_.insert_job.Begin()
                                .Bind(key.ns)
                                .Bind(key.name)
                                .Bind(record.job.etag())
                                .Bind(record.revision)
                                .Bind(body)
                                .Bind(notes)
                                .Run());
    if (plan != nullptr) {
      TESSERA_ASSIGN_OR_RETURN(const RowId row, RequireId(key));
      TESSERA_RETURN_IF_ERROR(
          sql_.attach.Begin().Bind(row.id).Bind(int64_t{kPlan}).Bind(plan->SerializeAsString()).Run());
    }
    if (!request_id.empty()) {
      TESSERA_RETURN_IF_ERROR(sql_.insert_request.Begin()
                                  .Bind(key.ns)
                                  .Bind(request_id)
                                  .Bind(fingerprint)
                                  .Bind(record.revision)
                                  .Bind(body)
                                  .Run());
      TESSERA_RETURN_IF_ERROR(sql_.trim_requests.Begin().Bind(int64_t{kMaxRequestIds}).Run());
    }
    TESSERA_RETURN_IF_ERROR(transaction.Commit());
    return record;
  }

  absl::StatusOr<std::optional<JobRecord>> FindRequest(const v1::TrainingJob& job,
                                                       const std::string& request_id) override {
    absl::MutexLock lock(&mutex_);
    return FirstAnswer(job.namespace_(), request_id, CreationFingerprint(job));
  }

  absl::StatusOr<JobRecord> Get(const JobKey& key) override {
    absl::MutexLock lock(&mutex_);
    TESSERA_ASSIGN_OR_RETURN(Row row, Require(key));
    return std::move(row.record);
  }

  absl::StatusOr<JobPage> List(const std::string& ns, int page_size, const std::string& page_token) override {
    TESSERA_ASSIGN_OR_RETURN(auto after, DecodePageToken(ns, page_token));
    absl::MutexLock lock(&mutex_);
    const int64_t limit = page_size > 0 ? int64_t{page_size} + 1 : -1;
    SqliteStatement& list = ns == "-" ? sql_.list_jobs : sql_.list_namespace;
    list.Begin().Bind(ns == "-" ? (after ? after->ns : "") : ns).Bind(after ? after->name : "").Bind(limit);
    JobPage page;
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const bool more, list.Step());
      if (!more) return page;
      if (page_size > 0 && static_cast<int>(page.jobs.size()) == page_size) {
        page.next_page_token = EncodePageToken(ns, KeyOf(page.jobs.back().job));
        list.Begin();
        return page;
      }
      TESSERA_ASSIGN_OR_RETURN(Row row, ReadRow(list));
      page.jobs.push_back(std::move(row.record));
    }
  }

  absl::StatusOr<JobRecord> Update(const JobRecord& record) override {
    absl::MutexLock lock(&mutex_);
    SqliteTransaction transaction(database_.get());
    TESSERA_RETURN_IF_ERROR(transaction.Begin());
    const JobKey key = KeyOf(record.job);
    TESSERA_ASSIGN_OR_RETURN(const RowId row, RequireId(key));
    if (row.etag != record.job.etag()) return StaleEtag(key);
    JobRecord next = record;
    TESSERA_RETURN_IF_ERROR(Stamp(next));
    TESSERA_RETURN_IF_ERROR(sql_.update_job.Begin()
                                .Bind(next.job.etag())
                                .Bind(next.revision)
                                .Bind(next.job.SerializeAsString())
                                .Bind(next.processes)
                                .Bind(next.notes)
                                .Bind(row.id)
                                .Run());
    TESSERA_RETURN_IF_ERROR(transaction.Commit());
    return next;
  }

  absl::Status Delete(const JobKey& key, const std::string& etag) override {
    absl::MutexLock lock(&mutex_);
    SqliteTransaction transaction(database_.get());
    TESSERA_RETURN_IF_ERROR(transaction.Begin());
    TESSERA_ASSIGN_OR_RETURN(const RowId row, RequireId(key));
    if (!etag.empty() && row.etag != etag) return StaleEtag(key);
    TESSERA_RETURN_IF_ERROR(NextRevision().status());
    TESSERA_RETURN_IF_ERROR(sql_.delete_job.Begin().Bind(row.id).Run());
    return transaction.Commit();
  }

  absl::Status AddPlan(const JobKey& key, const v1::Plan& plan) override {
    absl::MutexLock lock(&mutex_);
    return Attach(key, kPlan, kMaxPlansPerJob, [&](int64_t) { return plan.SerializeAsString(); });
  }
  absl::StatusOr<std::vector<v1::Plan>> Plans(const JobKey& key) override {
    absl::MutexLock lock(&mutex_);
    return Attachments<v1::Plan>(key, kPlan);
  }
  absl::Status AddEvent(const JobKey& key, const v1::Event& event) override {
    absl::MutexLock lock(&mutex_);
    return Attach(key, kEvent, kMaxEventsPerJob, [&](int64_t revision) {
      v1::Event stamped = event;
      stamped.set_revision(revision);
      return stamped.SerializeAsString();
    });
  }
  absl::StatusOr<std::vector<v1::Event>> Events(const JobKey& key) override {
    absl::MutexLock lock(&mutex_);
    return Attachments<v1::Event>(key, kEvent);
  }

 private:
  absl::StatusOr<int64_t> NextRevision() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TESSERA_RETURN_IF_ERROR(sql_.next_revision.Begin().Step().status());
    const int64_t revision = sql_.next_revision.Number(0);
    sql_.next_revision.Begin();
    return revision;
  }

  absl::Status Stamp(JobRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TESSERA_ASSIGN_OR_RETURN(record.revision, NextRevision());
    record.job.set_etag(EtagOf(record.revision));
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<JobRecord>> FirstAnswer(const std::string& ns, const std::string& request_id,
                                                       const std::string& fingerprint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (request_id.empty()) return std::nullopt;
    sql_.find_request.Begin().Bind(ns).Bind(request_id);
    TESSERA_ASSIGN_OR_RETURN(const bool seen, sql_.find_request.Step());
    if (!seen) return std::nullopt;
    const bool equal = sql_.find_request.Bytes(0) == fingerprint;
    JobRecord record;
    record.revision = sql_.find_request.Number(1);
    const bool parsed = record.job.ParseFromString(sql_.find_request.Bytes(2));
    sql_.find_request.Begin();
    if (!equal) return RequestIdReused(request_id);
    if (!parsed) return absl::DataLossError("the stored first answer of a request can't be read");
    return record;
  }

  absl::StatusOr<std::optional<RowId>> FindId(const JobKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TESSERA_ASSIGN_OR_RETURN(const bool found, sql_.find_id.Begin().Bind(key.ns).Bind(key.name).Step());
    if (!found) return std::nullopt;
    RowId row{sql_.find_id.Number(0), sql_.find_id.Bytes(1)};
    sql_.find_id.Begin();
    return row;
  }

  absl::StatusOr<RowId> RequireId(const JobKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TESSERA_ASSIGN_OR_RETURN(std::optional<RowId> row, FindId(key));
    if (!row.has_value()) return NoSuchJob(key);
    return *std::move(row);
  }

  absl::StatusOr<Row> Require(const JobKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TESSERA_ASSIGN_OR_RETURN(const bool found, sql_.find_job.Begin().Bind(key.ns).Bind(key.name).Step());
    if (!found) return NoSuchJob(key);
    absl::StatusOr<Row> row = ReadRow(sql_.find_job);
    sql_.find_job.Begin();
    return row;
  }

  template <typename Body>
  absl::Status Attach(const JobKey& key, Kind kind, int most, Body body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    SqliteTransaction transaction(database_.get());
    TESSERA_RETURN_IF_ERROR(transaction.Begin());
    TESSERA_ASSIGN_OR_RETURN(const RowId row, RequireId(key));
    TESSERA_ASSIGN_OR_RETURN(const int64_t revision, NextRevision());
    TESSERA_RETURN_IF_ERROR(sql_.attach.Begin().Bind(row.id).Bind(int64_t{kind}).Bind(body(revision)).Run());
    TESSERA_RETURN_IF_ERROR(
        sql_.trim_attachments.Begin().Bind(row.id).Bind(int64_t{kind}).Bind(int64_t{most}).Run());
    return transaction.Commit();
  }

  template <typename Message>
  absl::StatusOr<std::vector<Message>> Attachments(const JobKey& key, Kind kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TESSERA_ASSIGN_OR_RETURN(const RowId row, RequireId(key));
    std::vector<Message> messages;
    sql_.attachments.Begin().Bind(row.id).Bind(int64_t{kind});
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const bool more, sql_.attachments.Step());
      if (!more) return messages;
      if (!messages.emplace_back().ParseFromString(sql_.attachments.Bytes(0))) {
        return absl::DataLossError("a stored plan or event can't be read");
      }
    }
  }

  absl::Mutex mutex_;
  std::unique_ptr<SqliteDatabase> database_;  // outlives the statements
  Statements sql_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> OpenSqliteStore(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(auto database, SqliteDatabase::Open(path, kSchemaVersion, kCreate));
  TESSERA_ASSIGN_OR_RETURN(Statements statements, PrepareAll(*database));
  return std::make_unique<SqliteStore>(std::move(database), std::move(statements));
}

}  // namespace tessera::scheduler
