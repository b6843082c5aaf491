// Package browser keeps state in browsers: in cookies, and in sealed texts that no other
// browser can read or return.
//
//	cookie.go    cookies that scripts and other sites' forms cannot use
//	sealer.go    seals texts for one browser, by an id in a cookie
//	pieces.go    values too long for one cookie
//	device.go    browsers in which people signed in before
package browser
