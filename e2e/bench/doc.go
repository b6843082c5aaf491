// Command bench measures the built gateway under load on loopback, compared to other servers in the same run:
//
//	cd e2e && go run ./bench                 # all benchmarks, about ten minutes
//	cd e2e && go run ./bench -rounds 3 -round 1s -sizes 1000,10000 expand
//	cd e2e && go run ./bench -clients 16 authorize
//	cd e2e && go run ./bench -before ../before/caddy typing
//
// expand measures uncached fhir_expand with synthetic code systems, compared to Caddy's respond with a body of the
// same size; cache measures its cache, compared to respond, file_server and nginx; scan the effect of a million
// random filters; authorize the authorization server, compared to npm oidc-provider; flood the memory after a million
// useless requests; launch the cost of a launch context, and the speed of the page for choosing among 100,000
// patients. typing, which is not run by default, measures as-you-type requests to fhir_expand, compared to an earlier
// gateway. keycloak, which is not run by default either, and needs e2e/keycloak built as in its README, compares the
// authorization server with Keycloak, and counts the gateway's requests to Keycloak. With -before, authorize and
// cache also measure an earlier gateway, authorize in place of oidc-provider.
//
// Each server is a separate process: build ../caddy first. Rounds of load are sent to each in turn, so other load
// on the machine affects all of them. The median over the rounds of the server's CPU time per request, from
// /proc, is compared; a timeout or a refusal ends the run.
//
// It prints tables in Markdown, and expand plots cost against size into -plot.
package main
