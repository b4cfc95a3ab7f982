// cuda::std is the host's std, but for what a GPU does in its own way (cuda/atomic).
#pragma once
namespace std {}
namespace cuda::std {
using namespace ::std;
}
