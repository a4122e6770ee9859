#include "weights/row_encoders.h"

namespace flux2 {

const RowEncoders* avx2_row_encoders() { return nullptr; }

}  // namespace flux2
