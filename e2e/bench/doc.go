// Command bench measures the built gateway under load, on loopback, beside what
// Caddy does with a fixed answer of the same size in the same run:
//
//	cd e2e && go run ./bench                 # all scenarios, some five minutes
//	cd e2e && go run ./bench -rounds 3 -round 1s -sizes 1000,10000
//
// It starts two processes of ../caddy (build it first): one with fhir_expand over a
// synthetic code system, one that does nothing but respond. Rounds of load go to
// each in turn, so that whatever else the machine does falls on both alike. What
// is compared is the CPU time of the server per request, from /proc, and its
// median over the rounds; time-outs and answers other than 200 end the run.
//
// It prints tables in Markdown, and draws cost against size into -plot.
package main
