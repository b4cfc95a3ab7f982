// race_analyser LOG...: descriptors of the logs of ranks 0, 1, ...; writes one JSON document.
#include <stdio.h>
#include <stdlib.h>

#include <exception>

#include "findings.h"

using namespace races;
int main(int count, char** arguments) {
  std::vector<int> logs;
  for (int i = 1; i < count; ++i) logs.push_back(atoi(arguments[i]));
  const char* reason = "not a log";
  try {
    Trace trace;
    if (!logs.empty() && logs.size() <= 256 && trace.open(logs)) {
      Findings findings;
      Machine machine(trace, {}, findings);
      machine.run();
      classify(trace, findings);
      fputs(report(trace, machine, findings).c_str(), stdout);
      return 0;
    }
  } catch (const std::bad_alloc&) {
    reason = "more memory than allowed";
  } catch (const std::exception&) {
    reason = "malformed";
  }
  printf("{\"events\": 0, \"threads\": 0, \"truncated\": false, \"broken\": true, \"reason\": \"%s\", \"findings\": [], \"timeline\": []}\n", reason);
  return 0;
}
