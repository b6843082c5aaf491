// Package server asks the FHIR server, which is the next handler, in JSON without compression.
//
//	server.go  a request of ours made of the client's
//	memory.go  the memory in which bodies and answers are held, which all requests share
//	limits.go  and how much one request may cost
package server
