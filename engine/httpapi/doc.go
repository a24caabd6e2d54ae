// Package httpapi is the HTTP API: it decodes what comes, asks whether the caller may, has the
// server do it, and encodes what comes of it. Every route declares its permission; one that
// does not keeps the server from starting. The contract is in engine/api, and the OpenAPI
// document is made of the routes.
package httpapi
