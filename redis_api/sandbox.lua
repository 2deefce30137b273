-- What scripts of Redis' clients see, and all that bounds them. One runtime runs this once, and then one script.
--
-- The script gets an environment of its own, and no way to this one: no debug, no fenv, no coroutines, no
-- loading of code. All state here is in locals. `host` is the only way to Python; it never raises, takes and
-- returns no objects but tables it has made, and lifts the bound of memory, which an allocation in Python
-- could not survive: so `limit` follows each call of it.

local host, hook_count, budget, seconds, version, version_number = ...

local error, floor, format, getinfo, getmetatable = error, math.floor, string.format, debug.getinfo, getmetatable
local loadstring, pcall, rawget, rawset, select = loadstring, pcall, rawget, rawset, select
local setfenv, sethook, setmetatable, sub, tonumber = setfenv, debug.sethook, setmetatable, string.sub, tonumber
local tostring, type, unpack, xpcall = tostring, type, unpack, xpcall
local byte, char, clock, find, gsub, match = string.byte, string.char, os.clock, string.find, string.gsub, string.match
local concat, next = table.concat, next

local SOURCE = "@user_script"
local ARGS_MAX = 1024
local STRING_MAX = 512 * 1024
local PATTERN_MAX = 250   -- the C code recurses once for each item of a pattern
local DEPTH_MAX = 100     -- of a reply
local UNPACKED_MAX = 7000
local ITEMS_MAX = 20000   -- of a reply

-- -- what it may cost: a unit is about an instruction ----------------------------------------------------------

local used, ends_at, is_over = 0, 0, false

local function check()
    if is_over or used > budget or clock() > ends_at then
        is_over = true
        -- From here on each instruction raises, so that no pcall of the script can go on.
        sethook(check, "", 1)
        error("out of time", 0)
    end
end

local function on_count()
    used = used + hook_count
    check()
end

local function spend(units)
    used = used + (units >= 0 and units or budget)  -- what is not a number would make all of it none
    check()
end

-- Call Python. What an answer costs is paid before.
local function ask(...)
    spend(200)
    local kind, value = host(...)
    host("limit")
    if kind == "over" then
        used = budget + 1
        check()
    end
    return kind, value
end

-- -- errors ----------------------------------------------------------------------------------------------------

-- Return in which line the script is; nil if it ended with a call, of which nothing is left then.
local function line_of_script()
    local level, info = 2, nil
    repeat
        info = getinfo(level, "Sl")
        level = level + 1
    until not info or info.source == SOURCE
    return info and info.currentline
end

-- Raise an error that says where the script is, as those of C functions do.
local function fail(message)
    local line = line_of_script()
    error("user_script:" .. (line and line .. ":" or "") .. " " .. message, 0)
end

local function refuse()
    fail("Attempt to modify a readonly table")
end

-- What is behind each table that cannot be changed.
local behind = {}

local function frozen(content)
    local proxy = {}
    behind[proxy] = content
    return setmetatable(proxy, {__index = content, __newindex = refuse, __metatable = false})
end

-- Return an error of a C function that was called here as one of the script.
local function as_of_script(problem, line)
    return (gsub(problem, "^sandbox:%d+:", "user_script:" .. (line and line .. ":" or "")))
end

-- Runs where the error is raised. Nothing of the script is called: the hook may be off there.
local function on_error(problem)
    local line = line_of_script()
    if type(problem) == "string" then problem = as_of_script(problem, line) end
    if type(problem) ~= "table" then
        local kind = type(problem)
        local is_plain = kind == "string" or kind == "number" or kind == "boolean" or kind == "nil"
        problem = {err = "ERR " .. (is_plain and tostring(problem) or kind)}
    end
    rawset(problem, "line", line)
    return problem
end

-- -- the library of Lua, bounded -------------------------------------------------------------------------------

local strings = {
    byte = byte, char = char, format = format, len = string.len, lower = string.lower,
    reverse = string.reverse, sub = sub, upper = string.upper,
}

function strings.rep(text, count)
    count = tonumber(count)
    if not count or type(text) ~= "string" and type(text) ~= "number" then return string.rep(text, count) end
    local length = #tostring(text) * count
    if not (length > 0) then return "" end
    if length > STRING_MAX then fail("resulting string too large") end
    spend(length / 16)
    return string.rep(text, count)
end

-- Refuse a pattern that might take long: the C code tries all lengths of each part that repeats.
local function spend_on(text, pattern, is_anchored)
    if type(text) ~= "string" and type(text) ~= "number" then return end  -- an error of its own
    if type(pattern) ~= "string" then return end
    if #pattern > PATTERN_MAX then fail("pattern too long: at most 250 bytes are allowed") end
    local _, repeats = gsub(pattern, "[*+?-]", "")
    local _, others = gsub(pattern, "%%[bf1-9]", "")
    local tries = repeats + others + (is_anchored and byte(pattern) == 94 and 0 or 1)
    local cost = (#tostring(text) + 1) ^ tries * #pattern / 4
    if cost > budget then fail("pattern too complex for a text of this length") end
    spend(cost)
end

function strings.find(text, pattern, init, plain)
    if plain and type(text) == "string" and type(pattern) == "string" then
        spend(#text * #pattern / 64)
    else
        spend_on(text, pattern, true)
    end
    return find(text, pattern, init, plain)
end

function strings.match(text, pattern, init)
    spend_on(text, pattern, true)
    return match(text, pattern, init)
end

local gmatch = string.gmatch
function strings.gmatch(text, pattern)
    spend_on(text, pattern, false)
    return gmatch(text, pattern)
end

function strings.gsub(text, pattern, ...)
    spend_on(text, pattern, true)
    return gsub(text, pattern, ...)
end

local insert, remove, sort = table.insert, table.remove, table.sort
local tables = {}

function tables.insert(t, ...)
    local at = tonumber((...))
    if select("#", ...) > 1 and type(t) == "table" and at then
        if not (at >= 1 and at <= #t + 1) then fail("bad argument #2 to 'insert' (position out of bounds)") end
        spend(#t * 2)
    end
    return insert(t, ...)
end

function tables.remove(t, ...)
    if select("#", ...) > 0 and type(t) == "table" then spend(#t * 2) end
    return remove(t, ...)
end

function tables.concat(t, ...)
    if type(t) == "table" then spend(#t * 4) end
    return concat(t, ...)
end

-- An order that is a function of Lua is stopped by the hook.
local function is_less(one, two)
    return one < two
end

function tables.sort(t, order)
    if order ~= nil and type(order) ~= "function" then return sort(t, order) end
    local compare = order or is_less
    return sort(t, function(one, two) return compare(one, two) end)
end

function tables.getn(t)
    return #t
end

function tables.maxn(t)
    local highest = 0
    for key in next, t do
        if type(key) == "number" and key > highest then highest = key end
    end
    return highest
end

-- The C code does not see that so many are too many, and writes beyond its stack.
local function unpacked(t, first, last)
    if type(t) == "table" then
        local from, to = tonumber(first) or 1, tonumber(last) or #t
        if not (to - from < UNPACKED_MAX) then fail("too many results to unpack") end
        spend(to < from and 0 or (to - from) / 4)
    end
    return unpack(t, first, last)
end

local maths = {}
for name, value in next, math do
    maths[name] = value
end
maths.randomseed = function(seed)
    ask("seed", tonumber(seed) or fail("bad argument #1 to 'randomseed' (number expected)"))
end
maths.random = function(...)
    local low, high = ...
    local _, part = ask("random")
    if select("#", ...) == 0 then return part end
    low, high = tonumber(low), tonumber(high)
    if high == nil then low, high = 1, low end
    if not (low and high and low <= high) then fail("bad argument #1 to 'random' (interval is empty)") end
    return floor(part * (high - low + 1)) + low
end

local bits = {}
for name in gmatch("tobit bnot bswap band bor bxor lshift rshift arshift rol ror tohex", "%a+") do
    bits[name] = function(...)
        for at = 1, select("#", ...) do
            if type((select(at, ...))) ~= "number" then
                fail(format("bad argument #%d to '%s' (number expected)", at, name))
            end
        end
        local kind, value = ask(name, ...)
        if kind ~= "ok" then fail(format("bad argument #1 to '%s' (number expected)", name)) end
        return value
    end
end

-- -- redis -----------------------------------------------------------------------------------------------------

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
    REDIS_VERSION = version, REDIS_VERSION_NUM = version_number,
}

local function failure(message)
    error({err = "ERR " .. message}, 0)
end

-- Return the reply of a command, or its error as text.
local function command(...)
    local count = select("#", ...)
    if count == 0 then return nil, "ERR Please specify at least one argument for this redis lib call" end
    if count > ARGS_MAX then return nil, "ERR too many arguments: at most 1024 are allowed" end
    local words = {...}
    for at = 1, count do
        local word = words[at]
        if type(word) == "number" then
            words[at] = format("%.17g", word)
        elseif type(word) ~= "string" then
            return nil, "ERR Lua redis lib command arguments must be strings or integers"
        end
    end
    spend(2000)
    local kind, value = ask("call", unpack(words, 1, count))
    if kind == "error" then return nil, value end
    return value
end

function redis.call(...)
    local reply, problem = command(...)
    if problem then error({err = problem}, 0) end
    return reply
end

function redis.pcall(...)
    local reply, problem = command(...)
    if problem then return {err = problem} end
    return reply
end

local function reply_of(field, ...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
        return {err = "ERR wrong number or type of arguments"}
    end
    return {[field] = text}
end

function redis.error_reply(...)
    local reply = reply_of("err", ...)
    if sub(reply.err, 1, 1) == "-" then reply.err = sub(reply.err, 2) end
    if not find(reply.err, " ", 1, true) then reply.err = "ERR " .. reply.err end
    return reply
end

function redis.status_reply(...)
    return reply_of("ok", ...)
end

function redis.sha1hex(...)
    local text = ...
    if select("#", ...) ~= 1 then failure("wrong number of arguments") end
    text = type(text) == "string" and text or type(text) == "number" and tostring(text) or ""
    spend(#text / 8)
    local _, digest = ask("sha1hex", text)
    return digest
end

function redis.log(level, ...)
    if select("#", ...) == 0 then failure("redis.log() requires two arguments or more.") end
    if type(level) ~= "number" then failure("First argument must be a number (log level).") end
    if level < 0 or level > 3 then failure("Invalid log level.") end
    local parts = {}
    for at = 1, select("#", ...) do
        local part = select(at, ...)
        parts[at] = (type(part) == "string" or type(part) == "number") and sub(part, 1, 200) or ""
    end
    ask("log", sub(concat(parts, " "), 1, 200))
end

function redis.setresp(protocol, ...)
    if protocol == nil or select("#", ...) > 0 then failure("redis.setresp() requires one argument.") end
    if protocol ~= 2 and protocol ~= 3 then failure("RESP version must be 2 or 3.") end
    ask("setresp", protocol)
end

-- Every script is applied by its effects.
function redis.replicate_commands()
    return true
end
function redis.set_repl() end

-- -- cjson -----------------------------------------------------------------------------------------------------

local null = newproxy(false)
local NESTING_MAX = 1000
local escapes = {
    ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
    ["\r"] = "\\r", ["\t"] = "\\t", ["\127"] = "\\u007f",
}
for code = 0, 31 do
    escapes[char(code)] = escapes[char(code)] or format("\\u%04x", code)
end
local unescaped = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/"}

local function quoted(text)
    spend(#text)
    return '"' .. gsub(text, '[%c"\\/]', escapes) .. '"'
end

-- Return the length of an array, nil if a table has other keys.
local function length_of(t)
    local highest, count = 0, 0
    for key in next, t do
        if type(key) ~= "number" or key < 1 or floor(key) ~= key then return nil end
        if key > highest then highest = key end
        count = count + 1
    end
    return highest, count
end

local function number_text(number)
    if number ~= number or number == 1 / 0 or number == -1 / 0 then
        fail("Cannot serialise number: must not be NaN or Inf")
    end
    return format("%.14g", number)
end

local function encode(out, value, depth)
    local kind = type(value)
    if kind == "string" then
        out[#out + 1] = quoted(value)
    elseif kind == "number" then
        out[#out + 1] = number_text(value)
    elseif kind == "boolean" then
        out[#out + 1] = value and "true" or "false"
    elseif value == nil or rawequal(value, null) then
        out[#out + 1] = "null"
    elseif kind ~= "table" then
        fail("Cannot serialise " .. kind .. ": type not supported")
    else
        if depth > NESTING_MAX then fail("Cannot serialise, excessive nesting (1001)") end
        local length, count = length_of(value)
        if length and length > 10 and length > count * 2 then
            fail("Cannot serialise table: excessively sparse array")
        end
        if length and length > 0 then
            out[#out + 1] = "["
            for at = 1, length do
                if at > 1 then out[#out + 1] = "," end
                encode(out, rawget(value, at), depth + 1)
            end
            out[#out + 1] = "]"
        else
            out[#out + 1] = "{"
            local is_first = true
            for key, item in next, value do
                if not is_first then out[#out + 1] = "," end
                is_first = false
                if type(key) == "number" then
                    out[#out + 1] = '"' .. number_text(key) .. '":'
                elseif type(key) == "string" then
                    out[#out + 1] = quoted(key) .. ":"
                else
                    fail("Cannot serialise " .. type(key) .. ": table key must be a number or string")
                end
                encode(out, item, depth + 1)
            end
            out[#out + 1] = "}"
        end
    end
end

local function utf8(code)
    if code < 0x80 then return char(code) end
    if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
    if code < 0x10000 then
        return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
    end
    return char(
        0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64
    )
end

-- Return the string that begins behind a quote, and the place behind it; nil if it is none.
local function string_at(text, at)
    local parts = {}
    while true do
        local _, last = find(text, '^[^"\\%c]+', at)
        if last then
            spend(last - at)
            parts[#parts + 1] = sub(text, at, last)
            at = last + 1
        end
        local next_char = sub(text, at, at)
        if next_char == '"' then return concat(parts), at + 1 end
        if next_char == "\127" then
            parts[#parts + 1], at = next_char, at + 1
        elseif next_char ~= "\\" then
            return nil, at
        else
            local name = sub(text, at + 1, at + 1)
            if unescaped[name] then
                parts[#parts + 1], at = unescaped[name], at + 2
            else
                local code = tonumber(match(text, "^u(%x%x%x%x)", at + 1) or "", 16)
                if not code then return nil, at end
                at = at + 6
                if code >= 0xDC00 and code < 0xE000 then return nil, at end
                if code >= 0xD800 and code < 0xDC00 then
                    local low = tonumber(match(text, "^\\u(%x%x%x%x)", at) or "", 16)
                    if not low or low < 0xDC00 or low >= 0xE000 then return nil, at end
                    code, at = 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00, at + 6
                end
                parts[#parts + 1] = utf8(code)
            end
        end
    end
end

local signs = {
    ["{"] = "T_OBJ_BEGIN", ["}"] = "T_OBJ_END", ["["] = "T_ARR_BEGIN", ["]"] = "T_ARR_END",
    [","] = "T_COMMA", [":"] = "T_COLON", [""] = "T_END",
}
local constants = {
    ["true"] = {"T_BOOLEAN", true}, ["false"] = {"T_BOOLEAN", false}, null = {"T_NULL", null},
}

-- Return the next token: what it is, its value, where it begins, where it ends.
local function token_at(text, at)
    local _, last = find(text, "^[ \t\r\n]*", at)
    spend(last - at + 4)
    at = last + 1
    local first = sub(text, at, at)
    if signs[first] then return signs[first], nil, at, at + 1 end
    if first == '"' then
        local value, behind_it = string_at(text, at + 1)
        if value then return "T_STRING", value, at, behind_it end
        return "invalid token", nil, behind_it, at
    end
    local word = match(text, "^%a+", at)
    local constant = word and constants[word]
    if constant then return constant[1], constant[2], at, at + #word end
    local digits = match(text, "^-?%d+%.?%d*[eE]?[+-]?%d*", at)
    local number = digits and tonumber(digits)
    if number then return "T_NUMBER", number, at, at + #digits end
    return "invalid token", nil, at, at
end

local function unexpected(wanted, found, at)
    fail(format("Expected %s but found %s at character %d", wanted, found, at))
end

-- Return the value that a token begins, and the place behind it.
local function value_of(text, kind, value, at, behind_it, depth)
    if kind == "T_STRING" or kind == "T_NUMBER" or kind == "T_BOOLEAN" or kind == "T_NULL" then
        return value, behind_it
    end
    if kind ~= "T_OBJ_BEGIN" and kind ~= "T_ARR_BEGIN" then unexpected("value", kind, at) end
    if depth > NESTING_MAX then
        fail(format("Found too many nested data structures (1001) at character %d", at))
    end
    local is_object, items, count = kind == "T_OBJ_BEGIN", {}, 0
    local ending = is_object and "T_OBJ_END" or "T_ARR_END"
    kind, value, at, behind_it = token_at(text, behind_it)
    if kind == ending then return items, behind_it end
    while true do
        local key = count + 1
        if is_object then
            if kind ~= "T_STRING" then unexpected("object key string", kind, at) end
            key = value
            kind, value, at, behind_it = token_at(text, behind_it)
            if kind ~= "T_COLON" then unexpected("colon", kind, at) end
            kind, value, at, behind_it = token_at(text, behind_it)
        end
        items[key], behind_it = value_of(text, kind, value, at, behind_it, depth + 1)
        count = count + 1
        kind, value, at, behind_it = token_at(text, behind_it)
        if kind == ending then return items, behind_it end
        if kind ~= "T_COMMA" then
            unexpected(is_object and "comma or object end" or "comma or array end", kind, at)
        end
        kind, value, at, behind_it = token_at(text, behind_it)
    end
end

local cjson = {null = null, _NAME = "cjson", _VERSION = "2.1.0"}

function cjson.encode(...)
    if select("#", ...) ~= 1 then fail("bad argument #1 to 'encode' (expected 1 argument)") end
    local out = {}
    encode(out, (...), 1)
    return concat(out)
end

function cjson.decode(...)
    local text = ...
    if select("#", ...) ~= 1 then fail("bad argument #1 to 'decode' (expected 1 argument)") end
    if type(text) == "number" then text = tostring(text) end
    if type(text) ~= "string" then
        fail("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")")
    end
    local kind, value, at, behind_it = token_at(text, 1)
    value, behind_it = value_of(text, kind, value, at, behind_it, 1)
    local rest, _, place = token_at(text, behind_it)
    if rest ~= "T_END" then unexpected("the end", rest, place) end
    return value
end

-- -- cmsgpack --------------------------------------------------------------------------------------------------

local function packed(shape, number)
    local _, value = ask("pack", shape, number)
    return value
end

-- Return a head of the first kind that has room for a length: kinds are pairs of a bound and a first byte.
local function head(length, kinds)
    for at = 1, #kinds, 3 do
        if length <= kinds[at] then
            if kinds[at + 2] == "" then return char(kinds[at + 1] + length) end
            return char(kinds[at + 1]) .. packed(kinds[at + 2], length)
        end
    end
end

local LONG = 2 ^ 32 - 1
local TEXT = {31, 0xA0, "", 255, 0xD9, ">B", 65535, 0xDA, ">H", LONG, 0xDB, ">I"}
local ARRAY = {15, 0x90, "", 65535, 0xDC, ">H", LONG, 0xDD, ">I"}
local MAP = {15, 0x80, "", 65535, 0xDE, ">H", LONG, 0xDF, ">I"}
local POSITIVE = {127, 0, "", 255, 0xCC, ">B", 65535, 0xCD, ">H", LONG, 0xCE, ">I", 2 ^ 64 - 2048, 0xCF, ">Q"}

local function pack(out, value, depth)
    local kind = type(value)
    if kind == "string" then
        out[#out + 1] = head(#value, TEXT) .. value
    elseif kind == "boolean" then
        out[#out + 1] = value and "\195" or "\194"
    elseif kind == "number" then
        if floor(value) ~= value or value < -2 ^ 63 or value > 2 ^ 64 - 2048 then
            out[#out + 1] = packed("real", value)
        elseif value >= 0 then
            out[#out + 1] = head(value, POSITIVE)
        elseif value >= -32 then
            out[#out + 1] = char(256 + value)
        elseif value >= -128 then
            out[#out + 1] = "\208" .. packed(">b", value)
        elseif value >= -32768 then
            out[#out + 1] = "\209" .. packed(">h", value)
        elseif value >= -2 ^ 31 then
            out[#out + 1] = "\210" .. packed(">i", value)
        else
            out[#out + 1] = "\211" .. packed(">q", value)
        end
    elseif kind == "table" and depth < 16 then
        local length, count = length_of(value)
        if length and length == count then
            out[#out + 1] = head(length, ARRAY)
            for at = 1, length do
                pack(out, rawget(value, at), depth + 1)
            end
        else
            count = 0
            for _ in next, value do
                count = count + 1
            end
            out[#out + 1] = head(count, MAP)
            for key, item in next, value do
                pack(out, key, depth + 1)
                pack(out, item, depth + 1)
            end
        end
    else
        out[#out + 1] = "\192"
    end
end

-- How numbers and lengths are kept that have a first byte of their own: length in bytes, and shape.
local SHAPES = {
    [0xCA] = {4, ">f"}, [0xCB] = {8, ">d"}, [0xCC] = {1, ">B"}, [0xCD] = {2, ">H"}, [0xCE] = {4, ">I"},
    [0xCF] = {8, ">Q"}, [0xD0] = {1, ">b"}, [0xD1] = {2, ">h"}, [0xD2] = {4, ">i"}, [0xD3] = {8, ">q"},
}
local LENGTHS = {
    [0xC4] = {1, ">B"}, [0xC5] = {2, ">H"}, [0xC6] = {4, ">I"},
    [0xD9] = {1, ">B"}, [0xDA] = {2, ">H"}, [0xDB] = {4, ">I"},
    [0xDC] = {2, ">H"}, [0xDD] = {4, ">I"}, [0xDE] = {2, ">H"}, [0xDF] = {4, ">I"},
}

local function bytes_at(text, at, count)
    if at + count - 1 > #text then failure("Missing bytes in input.") end
    return sub(text, at, at + count - 1), at + count
end

local function unpacked_number(text, at, shape)
    local bytes, behind_it = bytes_at(text, at, shape[1])
    local _, number = ask("unpack", shape[2], bytes)
    return number, behind_it
end

local function items_at(text, at, count, is_map, depth, unpack_at)
    if depth > DEPTH_MAX then failure("Bad data format in input.") end
    local items = {}
    for number = 1, count do
        local key = number
        if is_map then
            key, at = unpack_at(text, at, depth + 1)
            if key == nil or key ~= key then failure("Bad data format in input.") end
        end
        items[key], at = unpack_at(text, at, depth + 1)
    end
    return items, at
end

local function unpack_at(text, at, depth)
    local first
    first, at = bytes_at(text, at, 1)
    first = byte(first)
    if first < 0x80 then return first, at end
    if first >= 0xE0 then return first - 256, at end
    if first < 0x90 then return items_at(text, at, first - 0x80, true, depth, unpack_at) end
    if first < 0xA0 then return items_at(text, at, first - 0x90, false, depth, unpack_at) end
    if first < 0xC0 then return bytes_at(text, at, first - 0xA0) end
    if first == 0xC0 then return nil, at end
    if first == 0xC2 or first == 0xC3 then return first == 0xC3, at end
    if SHAPES[first] then return unpacked_number(text, at, SHAPES[first]) end
    if not LENGTHS[first] then failure("Bad data format in input.") end
    local length
    length, at = unpacked_number(text, at, LENGTHS[first])
    if first < 0xDC then return bytes_at(text, at, length) end
    return items_at(text, at, length, first >= 0xDE, depth, unpack_at)
end

local cmsgpack = {_NAME = "cmsgpack"}

function cmsgpack.pack(...)
    if select("#", ...) == 0 then fail("bad argument #0 to 'pack' (MessagePack pack needs input.)") end
    local out = {}
    for at = 1, select("#", ...) do
        pack(out, (select(at, ...)), 0)
    end
    return concat(out)
end

function cmsgpack.unpack(text)
    if type(text) ~= "string" then fail("bad argument #1 to 'unpack' (string expected)") end
    local values, count, at = {}, 0, 1
    while at <= #text do
        count = count + 1
        values[count], at = unpack_at(text, at, 0)
    end
    if count > 1000 then failure("Too many values to return.") end
    return unpack(values, 1, count)
end

-- -- what a script sees ----------------------------------------------------------------------------------------

-- Both look at the clock: where calls are nested as deep as they may be, the hook cannot, and only raises.
local function as_text(is_done, problem, ...)
    spend(10)
    if is_done then return true, problem, ... end
    if type(problem) == "table" and type(rawget(problem, "err")) == "string" then problem = rawget(problem, "err") end
    if type(problem) == "string" then problem = as_of_script(problem) end
    return false, problem
end

local function handled(handler, is_done, ...)
    spend(10)
    if is_done then return true, ... end
    local _, problem = as_text(false, ...)
    return false, handler(problem)
end

local globals = {
    _VERSION = _VERSION, assert = assert, bit = frozen(bits), cjson = frozen(cjson), cmsgpack = frozen(cmsgpack),
    error = error, getmetatable = getmetatable, ipairs = ipairs, math = frozen(maths), next = next,
    pairs = pairs, rawequal = rawequal, redis = frozen(redis), select = select, setmetatable = setmetatable,
    string = frozen(strings), table = frozen(tables), tonumber = tonumber, tostring = tostring, type = type,
    unpack = unpacked,
}

function globals.pcall(...)
    return as_text(pcall(...))
end

-- The handler runs when all is unwound: where the error is raised the hook may be off.
function globals.xpcall(body, handler)
    return handled(handler, pcall(body))
end

function globals.rawget(t, key)
    return rawget(behind[t] or t, key)
end

function globals.rawset(t, key, value)
    if behind[t] then failure("Attempt to modify a readonly table") end
    return rawset(t, key, value)
end

-- Memory is collected when it is needed, and says nothing of a script.
function globals.collectgarbage()
    return 0
end

setmetatable(globals, {
    __index = function(_, name)
        fail("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'")
    end,
})
local environment = frozen(globals)
globals._G = environment

local of_strings = getmetatable("")
of_strings.__index, of_strings.__metatable = strings, false

-- -- replies ---------------------------------------------------------------------------------------------------

local flatten

local function flatten_table(out, value, depth)
    local text = rawget(value, "err")
    if type(text) == "string" then
        out[#out + 1], out[#out + 2] = "error", text
        return
    end
    text = rawget(value, "ok")
    if type(text) == "string" then
        out[#out + 1], out[#out + 2] = "status", text
        return
    end
    local number = rawget(value, "double")
    if type(number) == "number" then
        out[#out + 1], out[#out + 2] = "bytes", format("%.17g", number)
        return
    end
    text = rawget(value, "big_number")
    if type(text) == "string" then
        out[#out + 1], out[#out + 2] = "bytes", text
        return
    end
    text = rawget(value, "verbatim_string")
    if type(text) == "table" and type(rawget(text, "string")) == "string" then
        out[#out + 1], out[#out + 2] = "bytes", rawget(text, "string")
        return
    end
    out[#out + 1], out[#out + 2] = "array", 0
    local place, count = #out, 0
    local map, set = rawget(value, "map"), rawget(value, "set")
    if type(map) == "table" or type(set) == "table" then
        for key, item in next, type(map) == "table" and map or set do
            flatten(out, key, depth + 1)
            count = count + 1
            if type(map) == "table" then
                flatten(out, item, depth + 1)
                count = count + 1
            end
        end
    else
        local item = rawget(value, 1)
        while item ~= nil do
            flatten(out, item, depth + 1)
            count = count + 1
            item = rawget(value, count + 1)
        end
    end
    out[place] = count
end

-- Append what a value is as a reply: what it is, and what it has; an array, its length, and then its elements.
function flatten(out, value, depth)
    if depth > DEPTH_MAX then failure("reached lua stack limit") end
    if #out > ITEMS_MAX then failure("the reply of a script is too long") end
    local kind = type(value)
    if kind == "string" then
        out[#out + 1], out[#out + 2] = "bytes", value
    elseif kind == "number" then
        out[#out + 1], out[#out + 2] = "integer", value
    elseif kind == "boolean" and value then
        out[#out + 1], out[#out + 2] = "integer", 1
    elseif kind == "table" then
        flatten_table(out, value, depth)
    else
        out[#out + 1], out[#out + 2] = "nil", 0
    end
end

-- -- running ---------------------------------------------------------------------------------------------------

collectgarbage("setpause", 100)
collectgarbage("setstepmul", 400)
debug = nil -- lupa would call its traceback for every error

-- Return what became of a script: "syntax" and why, or "done" and its reply in parts, or "failed", why, and where.
return function(source, keys_count, ...)
    local script, problem = loadstring(source, SOURCE)
    if not script then return "syntax", problem end
    if keys_count < 0 then return "done" end
    local keys, args = {}, {}
    for at = 1, select("#", ...) do
        if at <= keys_count then
            keys[at] = (select(at, ...))
        else
            args[at - keys_count] = (select(at, ...))
        end
    end
    globals.KEYS, globals.ARGV = keys, args
    setfenv(script, environment)
    local out = {}
    ends_at = clock() + seconds
    host("limit")
    sethook(on_count, "", hook_count)
    local is_done, why = xpcall(function() flatten(out, script(), 1) end, on_error)
    sethook()
    host("unlimit")
    if is_done then return "done", out end
    if type(why) ~= "table" then return "memory" end
    local text, line = rawget(why, "err"), rawget(why, "line")
    return "failed", type(text) == "string" and text or "ERR unknown error", type(line) == "number" and line or 0
end
