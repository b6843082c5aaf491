// Package brands publishes the User Access Brands Bundle (SMART App Launch 2.2, User-access Brands). The Bundle describes the
// organization behind a FHIR API, with its name, logo and portal, for apps in which users choose where their records are.
//
//	bundle.go   validation of a Bundle: User Access Brand, its extensions, User Access Endpoint, references
//	element.go  an element of the JSON with its path for messages; formats of URL, id and instant
//	feature.go  the feature and the endpoint that serves the Bundle
//
// The Bundle is served byte for byte, so that apps get exactly the validated content. The profiles also allow resources of
// other types. They are rejected here, because they would become public with the Bundle.
package brands
