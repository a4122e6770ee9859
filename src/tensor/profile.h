#pragma once

namespace flux2 {

// Exact: matrix inputs stay f32 and every sum has a fixed order, so a row's result depends neither on the rows
// beside it nor on the number of threads. Fast: matrix inputs may be rounded to bf16.
enum class Profile { Exact, Fast };

}  // namespace flux2
