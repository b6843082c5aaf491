// Package deprovisioning ends what people have here when their identity provider says that it
// should end.
//
//	ending.go   ends sessions, or everything of an account
//	events.go   Security Event Tokens by push (RFC 8417, RFC 8935): events of CAEP 1.0 and RISC 1.0
//	subject.go  whom an event is about (RFC 9493)
//	scim.go     the part of SCIM 2.0 by which providers say who has left (RFC 7643, RFC 7644)
//	user.go     SCIM's User, and filters that find one: nothing of it is stored until it is renamed, its id holds its names
//	person.go   whom the id of a User was given for, whatever they are called by now
//
// Nobody is kept out: who signs in again at the provider, and is admitted, has an account
// again. Tokens of before stay void.
package deprovisioning
