// Where readers put what they find. A reader calls, for each record, begin_record(), sequence() any number of times,
// end_record(); or skip_record() alone.
#pragma once
#include <cstdint>
#include <string_view>

#include "data/report.h"

namespace esm::data {

class RecordSink {
 public:
  virtual ~RecordSink() = default;
  /// `id` is valid during the call only.
  virtual void begin_record(std::string_view id) = 0;
  /// A piece of the sequence as it stands in the file; may hold white space and anything else.
  virtual void sequence(std::string_view piece) = 0;
  virtual void end_record() = 0;
  /// A record that is left out by rule before its sequence is looked at.
  virtual void skip_record(Skip reason) = 0;
  /// Tables: which columns are taken, in words; once a file.
  virtual void columns(std::string_view) {}
  /// Tables: the split that the next record belongs to ("train", "valid", "test").
  virtual void split(std::string_view) {}
  /// A line that was passed over by rule.
  virtual void comment_line() {}
  /// Called about once a MiB of text, so that progress can be shown and a wish to stop be heard.
  virtual void tick() {}
};

}  // namespace esm::data
