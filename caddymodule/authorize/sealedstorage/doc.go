// Package sealedstorage keeps the keys of a keyring in the store that several gateways share,
// sealed, so that whoever can read the store can neither sign tokens nor open what is sealed.
//
//	storage.go   the values in the store, and how they get there
//	form.go      their form, sealed with keys that an operator gives to all gateways
package sealedstorage
