// Every op case on every device of this machine against the scalar kernels.
#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/op_cases.h"

namespace flux2 {
namespace {

Tensor run(const OpCase& c, Device& device, DType dtype) {
  auto stream = device.open_stream();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) inputs.push_back(random_tensor(*stream, dtype, c.inputs[i], 100 + i));
  return c.run(inputs);
}

double allowed(const OpCase& c, DType dtype, const std::string& device) {
  return tolerance(c.rounds_in_fast && device == "cpu fast" ? DType::BF16 : dtype, c.terms);
}

class OpAgreement : public testing::TestWithParam<OpCase> {};

TEST_P(OpAgreement, WithScalarKernels) {
  const OpCase& c = GetParam();
  const auto scalar = scalar_device();
  for (DType dtype : {DType::F32, DType::BF16}) {
    const Tensor expected = run(c, *scalar, dtype);
    for (const NamedDevice& other : other_devices()) {
      const Difference d = difference(run(c, *other.device, dtype), expected);
      EXPECT_LE(d.relative, allowed(c, dtype, other.name))
          << c.name << " " << name_of(dtype) << " on " << other.name << ": " << d.str();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OpAgreement, testing::ValuesIn(op_cases()), [](const auto& test) {
  std::string name = test.param.name;
  for (char& ch : name)
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  return name;
});

}  // namespace
}  // namespace flux2
