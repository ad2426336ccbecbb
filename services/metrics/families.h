// Series that are read anew at each exposition.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"

namespace tessera::services {

// Families in the order in which they were first written to.
class Families {
 public:
  void Gauge(const std::string& name, const std::string& help, double value,
             std::vector<prometheus::ClientMetric::Label> labels) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    Find(name, help, prometheus::MetricType::Gauge).metric.push_back(std::move(metric));
  }
  void Counter(const std::string& name, const std::string& help, double value,
               std::vector<prometheus::ClientMetric::Label> labels) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    metric.counter.value = value;
    Find(name, help, prometheus::MetricType::Counter).metric.push_back(std::move(metric));
  }
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::MetricFamily& Find(const std::string& name, const std::string& help,
                                 prometheus::MetricType type) {
    for (prometheus::MetricFamily& family : families_) {
      if (family.name == name) return family;
    }
    families_.push_back({name, help, type, {}});
    return families_.back();
  }
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace tessera::services
