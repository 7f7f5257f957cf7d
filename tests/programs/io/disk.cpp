/* Processes that write to one simulated disk: disk PROCESSES BYTES CALLS SECONDS_OF_A_CALL. Prints the seconds. */
#include <simgrid/s4u.hpp>
#include <cstdio>
#include <cstdlib>
namespace sg = simgrid::s4u;
int main(int argc, char** argv)
{
  sg::Engine e(&argc, argv);
  int n = atoi(argv[1]), calls = atoi(argv[3]); double bytes = atof(argv[2]), delay = atof(argv[4]);
  auto* zone = sg::create_full_zone("z");
  auto* host = zone->create_host("h", 1e9)->set_core_count(1024);
  auto* disk = host->create_disk("d", 2e9, 1e9);
  host->seal(); zone->seal();
  for (int i = 0; i < n; i++)
    sg::Actor::create("w", host, [=] { for (int c = 0; c < calls; c++) { sg::this_actor::sleep_for(delay); disk->write((sg_size_t)(bytes / calls)); } });
  e.run();
  printf("%.9f\n", sg::Engine::get_clock());
}
