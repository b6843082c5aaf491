// Package consent remembers what people allow clients, where they are asked (consent.go).
package consent
