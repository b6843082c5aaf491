// Package server asks the FHIR server, which is the next handler, in JSON without compression.
//
//	server.go  a request of ours made of the client's, and how much it may cost
//	memory.go  the memory in which bodies and answers are held, which all requests share
package server
