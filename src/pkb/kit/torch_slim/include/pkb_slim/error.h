// The exception that TORCH_CHECK and the adaptor throw; shared by the candidate's source and the adaptor.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace pkb_slim {

enum class ErrorKind : int { runtime, index, value, type, not_implemented };

class Error : public std::exception {
 public:
  explicit Error(std::string message, ErrorKind kind = ErrorKind::runtime, std::exception_ptr origin = nullptr)
      : message_(std::move(message)), origin_(std::move(origin)), kind_(kind) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const { return message_; }
  ErrorKind kind() const { return kind_; }
  // What torch itself threw, where it was torch: Python sees that one, with its own type.
  const std::exception_ptr& origin() const { return origin_; }

 private:
  std::string message_;
  std::exception_ptr origin_;
  ErrorKind kind_;
};

}  // namespace pkb_slim
