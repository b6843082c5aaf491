// Package deprovisioning ends what people have here when their identity provider says that it should end. SCIM and security
// events are features that use it.
//
// Nobody is kept out: who signs in again at the provider, and is admitted, has an account
// again. Tokens of before stay void.
package deprovisioning
