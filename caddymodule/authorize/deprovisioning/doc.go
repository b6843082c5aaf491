// Package deprovisioning ends sessions and grants at the request of an identity provider. The features for SCIM and security
// events use it.
//
// Deprovisioning does not block a person: signing in at the provider again creates the account again. Earlier tokens stay
// revoked.
package deprovisioning
