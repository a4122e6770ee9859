#pragma once

#include <vector>

#include "train/ranks/rank_message.h"
#include "train/ranks/rank_place.h"
#include "train/ranks/tcp_socket.h"

namespace flux2 {

// The connections of one rank after all have met.
struct RankConnections {
  struct Control {
    TcpSocket socket;
    MessageReader reader;
  };
  std::vector<Control> control;  // rank 0: to every rank, by rank (its own is not open); others: one, to rank 0
  TcpSocket previous, next;      // for data: to rank − 1 and rank + 1; not open at the ends
};

// Rank 0 listens at the place's address, the others come to it. Throws InvalidArgument or Network.
RankConnections meet(const RankPlace& place, double timeout_s);

}  // namespace flux2
