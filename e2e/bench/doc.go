// Command bench measures the built gateway under load, on loopback, beside others
// in the same run:
//
//	cd e2e && go run ./bench                 # everything, some ten minutes
//	cd e2e && go run ./bench -rounds 3 -round 1s -sizes 1000,10000 expand
//	cd e2e && go run ./bench -clients 16 authorize
//	cd e2e && go run ./bench -before ../before/caddy typing
//
// expand measures fhir_expand, its cache off, over synthetic code systems beside
// Caddy's respond with a body of the same size; cache its cache beside respond,
// file_server and nginx; scan what a million random filters do to it; authorize the
// authorization server beside npm oidc-provider; flood what a million requests that
// lead nowhere leave in memory; launch what a launch context costs, and how fast the page to
// choose among 100,000 patients on is. typing, which is not part of everything, measures
// typed requests of fhir_expand beside an earlier gateway. keycloak, which is not either, and needs e2e/keycloak as its README
// builds it, measures the authorization server beside Keycloak, and counts what a gateway asks it. With -before, authorize and cache have an
// earlier gateway beside them too, authorize in the place of oidc-provider.
//
// Each is a process of its own: build ../caddy first. Rounds of load go to each in
// turn, so that whatever else the machine does falls on both alike. What is compared
// is the CPU time of the server per request, from /proc, and its median over the
// rounds; a time-out or a refusal ends the run.
//
// It prints tables in Markdown, and expand draws cost against size into -plot.
package main
