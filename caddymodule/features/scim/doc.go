// Package scim lets identity providers deactivate and delete people: the part of SCIM 2.0 for
// deprovisioning (RFC 7643, RFC 7644).
//
//	scim.go  the Caddy module, and the endpoints of an identity provider
//	user.go  SCIM's User, and filters that find one: nothing of it is stored until it is renamed, its id holds its names;
//	         whom the id of a User was given for, whatever they are called by now
package scim
