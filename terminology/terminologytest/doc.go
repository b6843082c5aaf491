// Package terminologytest makes synthetic code systems of any size, for measurements and tests. The same
// parameters make the same content, to the byte.
package terminologytest
