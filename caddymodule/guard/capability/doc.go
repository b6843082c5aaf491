// Package capability changes what a FHIR server says of itself to what holds once it is guarded.
//
//	metadata.go      GET metadata, which needs no token
//	capabilities.go  what is different, and how apps get a token
//	edits.go           with all else as it is, byte for byte
//
// References: FHIR R4, CapabilityStatement; SMART App Launch 2.2.0, "Conformance".
package capability
