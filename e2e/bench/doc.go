// Command bench measures the built gateway under load, on loopback, against other
// servers in the same run:
//
//	cd e2e && go run ./bench                 # all default measurements, some ten minutes
//	cd e2e && go run ./bench -rounds 3 -round 1s -sizes 1000,10000 expand
//	cd e2e && go run ./bench -clients 16 authorize
//	cd e2e && go run ./bench -before ../before/caddy typing
//
// The default measurements: expand measures fhir_expand without cache over synthetic code
// systems against Caddy's respond with a body of the same size; cache its cache against respond,
// file_server and nginx; scan the effect of a million random filters; authorize the
// authorization server against npm oidc-provider; flood the memory after a million invalid
// requests; launch the cost of a launch context, and the speed of the patient picker with
// 100,000 patients. The others: typing measures typed requests of fhir_expand against an
// earlier gateway. keycloak measures the authorization server against Keycloak, and counts
// the gateway's requests to it; it needs e2e/keycloak, built as its README describes. clinical
// measures fhir_expand with synthetic releases of SNOMED CT and LOINC. With
// -before, authorize and cache also measure an earlier gateway, authorize instead of oidc-provider.
//
// Each server is a separate process: build ../caddy first. Rounds of load alternate between
// the servers, so that other load on the machine affects them equally. The result is the
// CPU time of the server per request, from /proc, as the median of the rounds. A timeout or
// an error response ends the run.
//
// The output is tables in Markdown. expand also plots cost against size into -plot.
package main
