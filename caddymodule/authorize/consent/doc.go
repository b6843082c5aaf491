// Package consent is about what people allow clients, where they are asked.
//
//	choice.go   what a person can give of an item: all of it, or parts
//	consent.go  what a person gave; stores it for each patient
//
// A client asks for items, which are scopes and claims. A person who does not want to give a
// scope for resources as a whole gives narrower scopes instead, which the asked one covers in
// the sense of smart.Grant: by kind of data, by category, or for reading alone. Consents are
// remembered by item, so that kinds and categories can change without anybody being asked
// again.
package consent
