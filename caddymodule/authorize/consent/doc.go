// Package consent remembers what people let clients have, where they are asked
// (consent.go).
package consent
