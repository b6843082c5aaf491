// Package terminologytest helps to test what uses a terminology service: it loads libraries (library.go), and makes
// synthetic code systems of any size (codesystem.go), for measurements too. The same parameters make the same
// content, to the byte. Tests inside of packages that a library is made of use package fixture.
package terminologytest
