// Package browser keeps things with browsers: cookies that nobody else can read or bring
// back.
//
//	cookie.go    cookies that scripts and other sites' forms cannot use
//	browser.go   the ids that bind sealed requests to the browser that they were sealed for
//	pieces.go    values too long for one cookie
//	device.go    browsers in which people signed in before
package browser
